// Package simbroker carries the broker contract in memory for a simulator: one [Broker] is the
// server that all clients share, and whoever runs the simulation decides when each frame
// arrives, which are lost, and what else goes wrong.
//
// # What it promises
//
//   - What [broker.Broker] says, the way RabbitMQ keeps it for quorum queues with a
//     delivery limit: first in first out, prefetch for each consumer, consumers with credit served in
//     turn, what was given back goes before what was never delivered, every return counts, and
//     what came back too often is dead-lettered at least once. Package brokertest holds it to that, with
//     frames that arrive at once and with frames that take their time.
//   - Nothing happens by itself. There is no clock but the time limits of calls, no randomness, and
//     no goroutine, except one for a reader that lets more pile up than its channel has room
//     for (pump in subscription.go says why). The same effects in the same order
//     always lead to the same state.
//   - No lock is held while anything is waited for, and every channel is made by the call that
//     needs it, so that all of it can live in a testing/synctest bubble.
//
// # What it never does
//
// It does not invent what a server would not do: everything it loses, doubles or delays, it was told
// to. It does not model clusters, elections or disks; what a client sees of these are refusals, missing
// confirms, lost connections and a wiped server. Exchanges exist as markers only. There is no consumer
// timeout.
//
// # Where to read
//
// network.go says what the simulator provides, faults.go and look.go what it can do to the server
// and see of it. The server's side is queue.go and channel.go. The clients' side is client.go,
// publish.go, subscription.go and declare.go: one file for each role of the contract. A
// connection (conn.go) has an end on each side, and these can notice its end at
// different times.
package simbroker
