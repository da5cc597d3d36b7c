package consumer

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// takeOffers claims what producers of this process have just stored, while this worker has nothing in hand, until ctx is done. To
// everything else that is a page like any other, but for its messages, of which it has none: the ticket comes through the broker
// as well, here or elsewhere, and finds its task claimed.
func (s *session) takeOffers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case offer := <-s.o.Offers:
			if !s.consumes(offer.Lane) || !s.jobs.none() {
				continue
			}
			if places, _ := s.room.tryReserve(1, ordinary); places == 1 {
				p := s.newPage()
				p.tickets = []holdfast.Ticket{offer.Ticket}
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
