package simbroker_test

import (
	"errors"
	"testing"

	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/workshop/brokertest"
	"github.com/holdfastq/holdfast/workshop/sim/simbroker"
)

var features = brokertest.Features{
	Conflicts:  true,
	Disconnect: func(b broker.Broker) { b.(*simbroker.Client).Disconnect() },
}

func TestConformance(t *testing.T) {
	brokertest.Run(t, features, func(t *testing.T) broker.Broker { return open(t, nil) })
}

// open returns a client of a new server.
func open(t testing.TB, n simbroker.Network) *simbroker.Client {
	t.Helper()
	c := simbroker.New().Client(n)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestConformanceOfALateNetwork shows that the promises do not depend on frames that arrive at once.
func TestConformanceOfALateNetwork(t *testing.T) {
	brokertest.Run(t, features, func(t *testing.T) broker.Broker { return open(t, newSlow(t)) })
}

func TestPresence(t *testing.T) {
	for name, network := range map[string]func(*testing.T) simbroker.Network{
		"at once": func(*testing.T) simbroker.Network { return nil },
		"late":    func(t *testing.T) simbroker.Network { return newSlow(t) },
	} {
		t.Run(name, func(t *testing.T) {
			brokertest.WorkerPresence(t, features, func(t *testing.T) (here, elsewhere brokertest.Present) {
				server := simbroker.New()
				one, other := server.Client(network(t)), server.Client(network(t))
				t.Cleanup(func() {
					if err := errors.Join(one.Close(), other.Close()); err != nil {
						t.Error(err)
					}
				})
				return one, other
			})
		})
	}
}
