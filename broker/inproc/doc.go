// Package inproc carries the broker contract in memory, inside one process: the broker of a
// program that runs alone, beside an embedded store.
//
// # What it promises
//
//   - What [broker.Broker] says, as the adapters of real brokers keep it; package brokertest
//     holds both to it. Queues hand out messages first in, first out, and what was given back
//     goes before what was never delivered.
//   - A message is held in exactly one place: it waits, or one subscription has it. A
//     subscription nobody receives from keeps at most one message from the others, whatever
//     its prefetch is; the rest waits in the queue for whoever receives first. Those
//     who wait are served in turn.
//   - The arguments of a queue are compared when it is declared again, and two of them
//     mean something. A message that was received and given back more often than x-delivery-limit
//     (a negative one is none) moves to the end of the queue x-dead-letter-routing-key.
//     While that queue does not exist, it is delivered again; without such an argument
//     it is dropped, with a warning, as RabbitMQ drops it. What was held out and not received
//     is not counted, nor marked as redelivered.
//   - Bodies are copied on their way in and on their way out, so that nobody's buffer is
//     anybody else's. Headers are dropped, for the contract has no way to read them.
//   - A backlog is cheap: a message of 40 bytes that waits costs 43 bytes in all, none of them
//     a pointer, and they are free again soon after the messages are received. An
//     unsettled message keeps up to 4 KiB around it.
//
// # What it never does
//
// It forgets everything when the process ends, queues included, and never writes to a disk. That
// is no loss: messages are hints. At the next start all queues are missing, as they are after
// the disks of a real broker were wiped, and the same code that heals that fills them
// again from the store. It also never refuses a message for want of room, expires none, and has
// no connections to lose, other than by [Broker.Interrupt].
//
// # Where to read
//
// One lock guards everything ([Broker]), and is never held while anybody waits. A queue
// (queue.go) keeps its messages in two logs of bytes (fifo.go). Each subscription
// has a goroutine, its pump (pump.go), which alone knows whether the message it offers was received.
package inproc
