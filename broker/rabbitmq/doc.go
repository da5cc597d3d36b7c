// Package rabbitmq carries the broker contract over RabbitMQ 3.10 or later.
//
// # What it promises
//
//   - Connections come back by themselves. A [Broker] keeps up to four of them: one
//     to publish, one to receive and settle, one to look after queues, one to show signs of presence, so that
//     an alarm that blocks publishers never holds up an acknowledgement, and a
//     refused declaration disturbs nobody. Each is redialled for ever, at the next URL
//     of the list, with pauses that grow from 50 ms to 2 s.
//   - Stored means that RabbitMQ confirmed the message: for a quorum queue that
//     a majority of its members wrote it down. Every message is persistent and
//     mandatory. A refusal, a closed channel and a missing confirm are all Unknown, and the
//     channel they happened on is never used again: a channel that lost one confirm
//     may lose all that follow.
//   - A subscription is one channel. When that channel ends, for whatever reason,
//     the subscription is over, and no tag of it ever reaches the wire again.
//     The reconnection built into amqp091-go, which keeps channels and restarts
//     their tags, stays switched off.
//   - No call hangs. Socket writes have a deadline, requests a time limit, and a node
//     that answers neither is left for the next one.
//
// # Where to read
//
// [Open] starts a link for each role (link.go); a link dials sessions (session.go),
// and a session opens channels (channel.go). Only session.go closes connections.
// publish.go, subscribe.go, declare.go and presence.go use them.
package rabbitmq
