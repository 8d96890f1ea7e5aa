// In a demo: this browser as a device of its own. The visitor answers the survey, sees the chain that is drawn, what leaves and
// what it costs, and may take it back. The client is loaded only here; outside of a demo the exporter does not serve it.

import { h, setText } from "./dom.js";
import { epsilonText, span } from "./format.js";

const LOOK_MS = 250;
const LEDGER = "thaw-demo-visitor";

/** The address of the gateway; empty outside of a demo. */
export const gatewayOf = () => document.body.dataset.gateway ?? "";

/** The card on the page of a survey. */
export class AnswerCard {
  constructor(info, clock) {
    this.info = info;
    this.clock = clock;
    this.choice = this.#choice();
    this.send = h("button", { type: "submit", class: "small-button", disabled: true }, "Answer");
    this.note = h("p", { class: "sentence", role: "status" }, "loading the client");
    this.rows = h("tbody", {});
    this.table = h("table", { class: "values chain", hidden: true },
      h("thead", {}, h("tr", {}, ...["rung", "all answers up to it cost", "drawn answer", "what becomes of it"].map((text) => h("th", { scope: "col" }, text)))), this.rows);
    this.bytes = h("pre", { class: "bytes" });
    this.left = h("details", { class: "numbers", hidden: true }, h("summary", {}, "The bytes that leave"), this.bytes);
    this.back = h("button", { type: "button", class: "small-button", hidden: true, on: { click: () => this.#do(() => this.device.withdraw(this.survey)) } }, "Take it back");
    this.off = h("button", { type: "button", class: "small-button", hidden: true, on: { click: () => this.#do(() => this.device.consent(!this.consent)) } });
    this.node = h("section", { class: "card figure answer", "aria-label": "Answer this survey from this browser" },
      h("div", { class: "figure-head" }, h("h3", {}, "Answer this survey from this browser")),
      h("form", { class: "controls", on: { submit: (event) => this.#submit(event) } }, h("label", {}, "Your answer ", this.choice), this.send, this.back, this.off),
      this.note, h("div", { class: "scroll" }, this.table), this.left);
    this.#start();
  }

  #choice() {
    const { info } = this;
    if (info.mechanism === "mean") return h("input", { type: "number", required: true, step: "any", value: (info.lows[0] + info.highs[0]) / 2 });
    if (info.mechanism === "rappor") return h("input", { type: "text", required: true, value: info.values[0] });
    return h("select", { required: true }, info.values.map((value) => h("option", { value }, value)));
  }

  async #start() {
    try {
      const { Device, Gateway, IndexedDBStore } = await import("./client/index.js");
      const gateway = new Gateway(gatewayOf());
      this.survey = await gateway.survey(this.info.id);
      this.device = new Device(new IndexedDBStore(LEDGER), [this.survey], gateway, { clock: this.clock });
    } catch (error) {
      setText(this.note, `This browser cannot answer: ${error.message}`);
      return;
    }
    this.send.disabled = false;
    this.timer = setInterval(() => this.#look(), LOOK_MS);
    this.#look();
  }

  /** Stop looking: another page is shown. */
  leave() {
    clearInterval(this.timer);
  }

  #submit(event) {
    event.preventDefault();
    const value = this.choice.type === "number" ? Number(this.choice.value) : this.choice.value;
    this.#do(() => this.device.observe(this.survey, value));
  }

  async #do(action) {
    this.told = "";
    try {
      await action();
    } catch (error) {
      this.told = error.message;
    }
    await this.#look();
  }

  /** Let the device do what is due, and show its ledger; one look at a time. */
  async #look() {
    if (this.looking) return;
    this.looking = true;
    try {
      await this.device.tick();
      this.#show(await this.device.statement());
    } catch (error) {
      this.told = error.message;
    } finally {
      this.looking = false;
    }
  }

  #show({ consent, spent, chains, outbox }) {
    this.consent = consent;
    const own = chains.filter(({ surveyId }) => surveyId === this.info.id);
    const chain = own.at(-1);
    const waiting = outbox.filter(({ surveyId, windowMs }) => surveyId === this.info.id && windowMs === chain?.windowMs);
    this.back.hidden = !(this.survey.withdrawable && chain && !chain.withdrawn);
    this.off.hidden = false;
    setText(this.off, consent ? "Switch this device off" : "Switch it on again");
    this.send.disabled = !consent;
    this.table.hidden = !chain || chain.withdrawn;
    this.left.hidden = waiting.length === 0;
    setText(this.bytes, waiting.map(({ frame }) => frame).join("\n"));
    if (chain && !chain.withdrawn) this.rows.replaceChildren(...chain.answers.map((answer, rung) => this.#row(chain, waiting, answer, rung)));
    this.node.dataset.state = this.#state(consent, chain, waiting);
    setText(this.note, this.told || this.#sentence(consent, spent, chain, waiting));
  }

  #state(consent, chain, waiting) {
    if (chain?.withdrawn) return waiting.length > 0 ? "withdrawing" : "withdrawn";
    if (!chain) return consent ? "ready" : "off";
    return waiting.length > 0 || chain.released.length === 0 ? "waiting" : chain.released.includes(this.survey.rungs - 1) ? "done" : "sent";
  }

  #sentence(consent, spent, chain, waiting) {
    const cost = `Spent so far, by this browser on all surveys: epsilon ${epsilonText(spent)}.`;
    if (!consent) return `This device is off: nothing is drawn, and nothing leaves but what takes answers back. ${cost}`;
    if (chain?.withdrawn) return `${waiting.length > 0 ? "Your answer is being taken back" : "Your answer was taken back"}; what it cost stays spent. ${cost}`;
    if (!chain) return `Your value stays in this page. The device draws one answer per level, keeps them, and sends each when its level opens. ${cost}`;
    return `One draw from the top level down, once: no level is drawn again. ${cost}`;
  }

  #row(chain, waiting, answer, rung) {
    return h("tr", { data: { rung, left: chain.released.includes(rung) && !waiting.some((report) => report.rung === rung) } },
      h("th", { scope: "row" }, rung), h("td", {}, `ε ${epsilonText(this.info.epsilons[rung])}`), h("td", { class: "drawn" }, this.#named(answer)),
      h("td", {}, this.#fate(chain, waiting, rung)));
  }

  /** An answer in words: a symbol by its value, bits as they are. */
  #named(answer) {
    const { mechanism, decoding } = this.survey;
    if (decoding.answer[0] === "bits") return `bits ${answer}`;
    const symbol = parseInt(answer.match(/../g).reverse().join(""), 16);
    return mechanism.name === "mean" ? `${symbol ? this.info.highs[0] : this.info.lows[0]} (an end of the range)` : mechanism.coding.order[symbol];
  }

  #fate(chain, waiting, rung) {
    const now = this.clock();
    const report = waiting.find((one) => one.rung === rung);
    const until = (moment) => (moment > now ? `in ${span(Math.max(1_000, Math.ceil((moment - now) / 1_000) * 1_000))}` : "now");
    if (report) return `leaves ${until(report.readyMs)}, after its random delay`;
    if (chain.released.includes(rung)) return "with the broker";
    if (chain.released.some((released) => released > rung)) return "never left: a sharper answer took its place";
    return this.survey.client.on_demand ? "is kept here" : `is kept here; its level opens ${until(this.survey.openingMs(chain.windowMs, rung))}`;
  }
}
