package rabbitmq

import amqp "github.com/rabbitmq/amqp091-go"

// IdleChannels are the channels that the next calls of Publish will use.
func (b *Broker) IdleChannels() []any {
	b.publishers.mu.Lock()
	defer b.publishers.mu.Unlock()
	var channels []any
	for _, p := range b.publishers.idle {
		channels = append(channels, p.amqp)
	}
	return channels
}

// DialError returns the error of a dial that RabbitMQ has refused with a reply.
func DialError(code int, text string) error {
	return dialError(&amqp.Error{Code: code, Reason: text, Server: true}, node{addr: "mq:5672", user: "app"})
}

// Plain returns the error that this package makes from a reply.
func Plain(code int, text string) error {
	return plain(&amqp.Error{Code: code, Reason: text, Server: true})
}
