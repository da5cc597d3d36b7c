// Package inproc is an in-memory message broker for a program that runs as a single process, next to an embedded store.
//
// # What it promises
//
//   - It implements the contract of [broker.Broker]. Package brokertest checks the same rules as for the RabbitMQ
//     adapter.
//   - A queue delivers messages first in, first out. Requeued messages go before messages that were never delivered.
//   - A message is in exactly one place: it waits in a queue, or one subscription has it. A subscription whose
//     deliveries are not received withholds at most one message from the other subscriptions, whatever its prefetch is.
//     Waiting subscriptions are served in turn.
//   - Declare compares the arguments of a queue with those of the existing queue. Two arguments have an effect. A
//     message that is requeued more often than x-delivery-limit moves to the end of the queue
//     x-dead-letter-routing-key. A negative limit means no limit. While the target queue does not exist, the message is
//     delivered again. If the queue has no x-dead-letter-routing-key, the broker drops the message and logs a warning,
//     as RabbitMQ does. A message that no reader received counts neither as requeued nor as redelivered.
//   - Bodies are copied on publish and on delivery, so publishers and readers may reuse their buffers. Headers are
//     dropped, because the contract has no way to read them.
//   - A backlog is cheap: a waiting message of 40 bytes takes 43 bytes in total and contains no pointers. The memory is
//     freed soon after the messages are received. An unsettled message keeps up to 4 KiB of memory alive.
//
// # What it never does
//
// The broker never writes to disk. When the process ends, it loses all queues and messages. No task is lost, because
// messages are only hints. At the next start all queues are missing, as after a wipe of a real broker. The janitor then
// declares the queues and refills them from the store, in the same way.
//
// The broker never rejects a message because a queue is full, and no message expires. It has no connections to lose;
// [Broker.Interrupt] simulates such a loss.
//
// # Where to read
//
// One lock guards the whole [Broker]. No goroutine waits while it holds this lock. A queue (queue.go) keeps its
// messages in two byte logs (fifo.go). Each subscription has one goroutine, its pump (pump.go), which sends the
// deliveries. Only the pump knows whether a reader received its pending message.
package inproc
