// Package queue is what a program needs beside the root package: it stores tasks, runs their handlers, and recovers the
// tasks of processes that ended.
//
//	q, err := queue.Open(ctx) // settings from the environment; a file if nothing is set
//	defer q.Close()
//	queue.Handle(q, "welcome", func(ctx context.Context, task holdfast.Task, w Welcome) error { … })
//	q.Enqueue(ctx, "welcome", Welcome{"ada@example.com"}, queue.In(time.Hour), queue.Unique("ada"))
//	q.Run(ctx) // until ctx ends or the process receives SIGTERM
//
// # What it promises
//
// If Enqueue returns no error, the task is committed. It will be done, or dead and waiting for a person, or cancelled. A
// handler runs at least once, and more than once only if a worker ended or lost its lease before it stored the result. The
// pair (task.ID, task.Attempt) is a fencing token, and task.IdempotencyKey is a key for other systems; docs/guarantees.md
// has all promises and their limits.
//
// The package composes a producer, a worker and a janitor over one store and one broker. It opens no port, has no task type
// of its own and links no metrics: package app/daemon adds those for the command holdfast serve. A program that wants the
// type http registers the handler of package consumer/webhook. An [Observer] option receives what metrics need.
//
// # Settings
//
// [Open] reads the same settings as the command holdfast serve, in this order, the later one winning: defaults, the YAML
// file that HOLDFAST_CONFIG names, environment variables, options. With DATABASE_URL and AMQP_URL any number of processes
// share the tasks in PostgreSQL and RabbitMQ. If nothing is set, the tasks are in the file of holdfast serve,
// holdfast/holdfast.db in the user's data folder. Any process of the machine may store tasks in a file, and one process at a
// time runs them.
//
// The settings of a task type are those of its type in the configuration. The options of [Handle] change what they name and
// leave the rest. They hold for the attempts that this process runs. A janitor of another process judges crashes by its own
// settings.
//
// The limit of attempts is the task's own if Enqueue got [MaxAttempts]. Otherwise the worker that runs an attempt decides by
// its settings of the type.
//
// # Errors
//
// Errors wrap the sentinels of package holdfast: ErrInvalid, ErrNotFound, ErrConflict, ErrUnavailable. After Close, calls
// return [ErrClosed].
//
// # Concurrency
//
// A [Client] is safe for concurrent use. Call Handle before Run. Goroutines call handlers, middleware and policy functions
// at the same time.
package queue
