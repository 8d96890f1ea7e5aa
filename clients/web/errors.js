// What a client refuses, and why.

/** A survey is not answered: the message says why. */
export class SurveyError extends Error {}

/** A release would cost more than is left, or than the person allows. Nothing was released. */
export class BudgetError extends Error {}

/** The window has a chain for another value; the value of a chain is fixed. */
export class ValueFixedError extends Error {}

/** The gateway takes no request of that size; nothing was taken. */
export class TooLargeError extends Error {}

/** The gateway has not confirmed; send the same bytes again. */
export class NotConfirmedError extends Error {
  /** @param {string} message @param {number} waitMs how long the gateway asked to wait */
  constructor(message, waitMs = 0) {
    super(message);
    this.waitMs = waitMs;
  }
}
