// Package faults breaks a real deployment on purpose and counts what becomes of its tasks: three RabbitMQ nodes,
// PostgreSQL with a synchronous replica, workers, janitors and producers, each in a network namespace of its own on
// one machine. It is what `make faults` runs, and it writes docs/fault-report.md.
//
// # Who says what happened
//
//   - A producer process writes down a task when Enqueue has returned: that is what accepted means (produce.go).
//   - The tasks are HTTP requests to the recorder, a process that is never broken. It writes down each request: the
//     task's number, the attempt, from which end it came, when it began and ended, and how (record.go).
//   - The campaign writes down each fault, with its moments and whom it hit (campaign.go, inflict.go).
//   - The store is asked once, at the very end, in which state each accepted task is.
//
// The judge compares these books (judge.go). An accepted task that is not done, or done though the recorder never
// answered it with success, is lost. An execution beyond the first must follow a planned failure or be explained by a
// fault that hit the worker of the execution before it, or the database; faults of the broker, of its network
// and of janitors explain nothing, for they must never run a task twice.
//
// What is broken, where and in what order follows from a seed (plan.go). The moments do not: these are real servers.
package faults
