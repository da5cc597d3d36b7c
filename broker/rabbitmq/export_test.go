package rabbitmq

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
