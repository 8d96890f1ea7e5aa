// Reads a JSON list of resources with Strimzi's own classes, and prints every field that they do not know and every
// version that they do not serve.
//
//   java -cp 'LIBS/*' Strimzi.java <resources.json

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.strimzi.api.kafka.model.common.UnknownPropertyPreserving;
import io.strimzi.api.kafka.model.topic.KafkaTopic;
import io.strimzi.api.kafka.model.user.KafkaUser;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;

public class Strimzi {
    static void look(String place, Object value) throws Exception {
        if (value instanceof List<?> list) {
            for (int at = 0; at < list.size(); at++) look(place + "[" + at + "]", list.get(at));
        }
        if (!(value instanceof UnknownPropertyPreserving model)) return;
        Map<String, Object> unknown = model.getAdditionalProperties();
        if (unknown != null) for (String name : unknown.keySet()) System.out.println(place + ": unknown field " + name);
        for (Method method : value.getClass().getMethods()) {
            String name = method.getName();
            if (name.startsWith("get") && method.getParameterCount() == 0 && !name.equals("getClass")
                    && !name.equals("getAdditionalProperties")) {
                look(place + "." + name.substring(3, 4).toLowerCase() + name.substring(4), method.invoke(value));
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        for (JsonNode node : mapper.readTree(System.in)) {
            String kind = node.get("kind").asText();
            String place = kind + "/" + node.get("metadata").get("name").asText();
            String version = node.get("apiVersion").asText().replaceFirst(".*/", "");
            List<String> versions = kind.equals("KafkaTopic") ? KafkaTopic.VERSIONS : KafkaUser.VERSIONS;
            if (!versions.contains(version)) System.out.println(place + ": version " + version + " is none of " + versions);
            try {
                Class<?> model = kind.equals("KafkaTopic") ? KafkaTopic.class : KafkaUser.class;
                look(place, mapper.treeToValue(node, model));
            } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
                System.out.println(place + ": " + error.getOriginalMessage());
            }
        }
    }
}
