package producer

import (
	"errors"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// mustNew returns a producer. It panics if the options are invalid.
func mustNew(o Options) *Producer {
	p, err := New(o)
	if err != nil {
		panic(err)
	}
	return p
}

// validOptions are the options of a producer whose store and broker are fakes.
var validOptions = Options{Store: acceptingStore{}, Broker: new(pacedPublisher), Topology: broker.NewTopology("p", 1, "test")}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options){
		"no store":            func(o *Options) { o.Store = nil },
		"no broker":           func(o *Options) { o.Broker = nil },
		"no topology":         func(o *Options) { o.Topology = broker.Topology{} },
		"no incarnation":      func(o *Options) { o.Topology.Incarnation = "" },
		"negative payload":    func(o *Options) { o.MaxPayload = -1 },
		"negative timeout":    func(o *Options) { o.ConfirmTimeout = -1 },
		"negative grace time": func(o *Options) { o.OutboxGrace = -1 },
	} {
		o := validOptions
		change(&o)
		if p, err := New(o); p != nil || !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(validOptions); err != nil {
		t.Error(err)
	}
}
