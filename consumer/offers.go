package consumer

import "context"

// takeOffers claims what producers of this process have just stored, while this worker has nothing in hand, until ctx is done. To
// everything else that is a page like any other, but for its messages, of which it has none: the tickets come through the broker
// as well, here or elsewhere, and find their tasks claimed.
func (s *session) takeOffers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case offer := <-s.o.Offers:
			if s.consumes(offer.Lane) && s.jobs.none() && s.room.reserveAll(len(offer.Tickets)) {
				p := s.newPage()
				p.tickets = offer.Tickets
				p.process(ctx, &acks{})
			}
		}
	}
}

// consumes reports whether the tasks of a lane come here.
func (s *session) consumes(lane string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, followed := s.intakes[s.o.Topology.Main(lane)]
	return followed && waiting == ""
}

// reserveAll takes n places that are free now, or none.
func (r *room) reserveAll(n int) bool {
	got, _ := r.tryReserve(n, ordinary)
	if got < n {
		r.add(-got)
	}
	return got == n
}
