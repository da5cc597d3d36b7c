package producer

import (
	"errors"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// made returns a producer whose options are known to be good.
func made(o Options) *Producer {
	p, err := New(o)
	if err != nil {
		panic(err)
	}
	return p
}

// storeless are the options of a producer that stores nothing.
var storeless = Options{Store: discharged{}, Broker: new(paced), Topology: broker.NewTopology("p", 1, "test")}

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
		o := storeless
		change(&o)
		if p, err := New(o); p != nil || !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(storeless); err != nil {
		t.Error(err)
	}
}
