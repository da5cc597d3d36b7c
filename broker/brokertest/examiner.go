package brokertest

import (
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/doctor"
)

// Examinable is a broker that checks its own server.
type Examinable interface {
	broker.Broker
	doctor.BrokerChecker
}

// RunExaminer tests the role doctor.BrokerChecker. open returns a broker as for Run.
func RunExaminer(t *testing.T, open func(t *testing.T) Examinable) {
	for _, test := range []struct {
		name string
		run  func(*suite, Examinable)
	}{
		{"the server is sound in tests", testServer},
		{"comparing makes and changes nothing", testCompare},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			here := open(t)
			test.run(&suite{T: t, Broker: here}, here)
		})
	}
}

func testServer(s *suite, here Examinable) {
	checks, err := here.Server(s.ctx())
	s.must(err)
	if len(checks) == 0 {
		s.Error("nothing was looked at")
	}
	for _, f := range checks {
		if f.Name == "" || f.Detail == "" || (f.Severity == doctor.OK) != (f.Remedy == holdfast.Hint{}) {
			s.Errorf("incomplete: %+v", f)
		}
		if f.Severity == doctor.Failed {
			s.Errorf("tests need a sound broker: %+v", f)
		}
	}
}

func testCompare(s *suite, here Examinable) {
	compare := func(want doctor.Severity, objects ...broker.Object) {
		s.Helper()
		checks, err := here.Compare(s.ctx(), objects)
		s.must(err)
		if len(checks) != len(objects) {
			s.Fatalf("%d checks for %d objects", len(checks), len(objects))
		}
		for i, f := range checks {
			if f.Name != objects[i].Name || f.Severity != want || (want == doctor.OK) != (f.Remedy == holdfast.Hint{}) {
				s.Errorf("want %s: %+v", want, f)
			}
		}
	}
	topology := broker.NewTopology(name(), 1, "1")
	objects := append(topology.Queues([]string{"lane"}), topology.MarkerObject())
	compare(doctor.Failed, objects...)
	missing, err := here.Missing(s.ctx(), objects)
	s.must(err)
	if len(missing) != len(objects) {
		s.Errorf("it has made what was missing: of %d only %q are", len(objects), missing)
	}
	s.declare(objects...)
	compare(doctor.OK, objects...)

	other := objects[0]
	other.Args = map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(7)}
	compare(doctor.Failed, other)
	compare(doctor.OK, objects[0])
	compare(doctor.Failed, other)
}
