// Package rabbitmq implements the broker contract with RabbitMQ 3.10 or later.
//
// # What it promises
//
//   - Lost connections are restored. A [Broker] keeps up to four connections: one to publish, one to receive and
//     settle, one for queue administration, and one for presence queues. So an alarm that blocks publishers does not
//     delay acknowledgements, and a refused declaration affects no other call. Each connection is redialed forever, at
//     the next URL of the list, with pauses that grow from 50 ms to 2 s.
//   - The outcome Stored means that RabbitMQ confirmed the message. For a quorum queue, a majority of its members have
//     then written the message to disk. Every message is persistent and mandatory. A refusal, a closed channel and a
//     missing confirm all result in the outcome Unknown. The channel is then not used again, because a channel that
//     lost one confirm may lose all later ones.
//   - A subscription is one channel. When that channel ends, for any reason, the subscription ends, and none of its
//     delivery tags is sent to RabbitMQ again. The automatic recovery of amqp091-go stays off, because it keeps
//     channels and restarts their tags.
//   - No call hangs. Socket writes have a deadline and requests have a time limit. If a node does not respond in time,
//     the link connects to the next node.
//
// # Where to read
//
// [Open] starts one link per role (link.go). A link dials sessions (session.go), and a session opens channels
// (channel.go). Only session.go closes connections. The files publish.go, subscribe.go, declare.go and presence.go use
// these channels.
package rabbitmq
