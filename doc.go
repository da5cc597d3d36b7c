// Package holdfast is the domain of a reliable retry worker: what a task is,
// which states it passes through, and who judges what one attempt meant.
//
// A task is a row in a SQL store, which is the truth. A ticket in RabbitMQ is
// only a hint that a task may be run. Consumers claim the tasks their tickets
// name, list the page they took in a manifest in a second, holding queue, run
// the handlers and write the results. A janitor reads the manifests and
// returns the work of processes that are gone.
//
// The package imports the standard library only and does no input or output.
// Everything in it is a value or a pure function, and is safe for concurrent
// use unless its comment says otherwise.
//
// # The life of a task
//
//  1. A producer inserts the row in state [Ready] together with an outbox
//     receipt, commits, publishes the ticket and deletes the receipt.
//  2. A consumer claims it: [Running], owned by one [RunID], for one attempt.
//  3. [Settle] judges what the attempt meant; the store applies the resulting
//     [Transition] only if the row still stands where the judge saw it.
//  4. The task is [Done], or [Ready] again at a later time with a new attempt
//     number, or [Dead] and waits for a person, or [Cancelled].
//
// # Two numbers that are easily confused
//
// Task.Attempt numbers the executions: it grows by one each time a task is
// handed back, whatever the reason, so (task id, attempt) is a fencing token
// that no two accepted results share. Task.Failures counts the attempts the
// task itself failed, and only those use up MaxAttempts: shutdowns, deferrals and
// crashes of a worker have their own counters and limits.
package holdfast
