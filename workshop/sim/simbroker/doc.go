// Package simbroker implements the contract of package broker in memory, for a simulator. One [Broker] is the server
// that all clients share. The simulator decides when each frame arrives, which frames are lost, and which faults
// happen.
//
// # Promises
//
//   - It keeps the contract of [broker.Broker] like RabbitMQ with quorum queues that have a delivery limit. Messages
//     are first in, first out. Each consumer has its prefetch, and consumers with credit are served in turn. Returned
//     messages go before messages that were never delivered. Every return counts, and a message with too many
//     returns is dead-lettered at least once. Package brokertest verifies this, both with frames that arrive at once
//     and with frames that take time.
//   - The package does nothing by itself. It uses no clock except the time limits of calls, and no random numbers.
//     It starts no goroutine, except one for a reader whose backlog exceeds the capacity of its channel (see pump).
//     The same effects in the same order always lead to the same state.
//   - It never waits while it holds a lock. The call that needs a channel creates it, so that everything can run in a
//     testing/synctest bubble.
//
// # Limits
//
// The package does nothing that a real server would not do. It loses, duplicates or delays frames and messages only if
// the simulator requests that. It does not model clusters, elections or disks. A client sees these only as refusals,
// missing confirms, lost connections and a wiped server. Exchanges exist only as markers. There is no consumer timeout.
//
// # Reading order
//
// network.go defines what the simulator provides. faults.go and look.go define how the simulator changes and inspects
// the server. queue.go and channel.go are the server's side. client.go, publish.go, subscription.go and declare.go are
// the client's side, one file for each role of the contract. A connection (conn.go) has an end on each side, and the
// two sides can notice its end at different times.
package simbroker
