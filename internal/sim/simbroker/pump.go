package simbroker

import "github.com/holdfastq/holdfast/broker"

// pump carries deliveries for which there was no room to the reader. It is a goroutine, because nothing
// else learns that a reader has made room; room for every possible prefetch would cost
// megabytes for each subscription. A reader that keeps up never needs one.
type pump struct {
	sub     *subscription
	list    []broker.Delivery // the first one may have left it
	stopped bool
	ended   bool          // it does nothing more
	halt    chan struct{} // closed to stop it
	done    chan struct{} // closed when it has stopped
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

// next returns what is to be sent, or ends the pump.
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
