package simbroker

import "github.com/holdfastq/holdfast/broker"

// pump sends to the reader the deliveries that exceed the capacity of its channel. It is a goroutine, because only a
// blocked send learns that the reader has received something. A channel with the capacity of the largest prefetch would
// need megabytes for each subscription. A reader that keeps up needs no pump.
type pump struct {
	sub     *subscription
	list    []broker.Delivery // the first one may already have been sent
	stopped bool
	ended   bool          // the pump does nothing more
	halt    chan struct{} // closed to stop it
	done    chan struct{} // closed when its goroutine has ended
}

func newPump(s *subscription) *pump {
	p := &pump{sub: s, halt: make(chan struct{}), done: make(chan struct{})}
	s.client.work.Go(p.run)
	return p
}

func (p *pump) stop() {
	if !p.stopped {
		p.stopped = true
		close(p.halt)
	}
}

func (p *pump) run() {
	defer close(p.done)
	for {
		d, more := p.next()
		if !more {
			return
		}
		select {
		case p.sub.out <- d:
			p.sent()
		case <-p.halt:
		}
	}
}

// next returns the next delivery to send. Without one, it ends the pump.
func (p *pump) next() (d broker.Delivery, more bool) {
	s := p.sub
	s.client.broker.mu.Lock()
	defer s.client.broker.unlock()
	switch {
	case s.over:
		s.drain()
		close(s.out)
	case p.stopped:
	case len(p.list) == 0:
		s.pump = nil
	default:
		return p.list[0], true
	}
	p.ended = true
	return d, false
}

func (p *pump) sent() {
	p.sub.client.broker.mu.Lock()
	defer p.sub.client.broker.unlock()
	p.list = p.list[1:]
}
