// A client of Thaw for browsers and Node. docs/spec says what it must do; README.md beside this file how to use it.

export { Device } from "./device.js";
export { BudgetError, ValueFixedError } from "./errors.js";
export { Gateway } from "./gateway.js";
export { IndexedDBStore } from "./indexeddb.js";
export { Survey, SurveyError } from "./survey.js";
