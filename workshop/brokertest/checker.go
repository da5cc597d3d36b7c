package brokertest

import (
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
	"github.com/holdfastq/holdfast/doctor"
)

// Checkable is a broker that can check its own server.
type Checkable interface {
	broker.Broker
	doctor.BrokerChecker
}

// RunChecker tests the role doctor.BrokerChecker. open returns a broker as in Run.
func RunChecker(t *testing.T, open func(t *testing.T) Checkable) {
	for _, test := range []struct {
		name string
		run  func(*suite, Checkable)
	}{
		{"Server reports no failure", testServer},
		{"Compare creates and changes nothing", testCompare},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			checker := open(t)
			test.run(&suite{T: t, Broker: checker}, checker)
		})
	}
}

func testServer(s *suite, checker Checkable) {
	checks, err := checker.Server(s.ctx())
	s.must(err)
	if len(checks) == 0 {
		s.Error("Server returned no checks")
	}
	for _, check := range checks {
		if check.Name == "" || check.Detail == "" || (check.Severity == doctor.OK) != (check.Remedy == holdfast.Hint{}) {
			s.Errorf("incomplete check: %+v", check)
		}
		if check.Severity == doctor.Failed {
			s.Errorf("the test needs a broker without failures: %+v", check)
		}
	}
}

func testCompare(s *suite, checker Checkable) {
	compare := func(want doctor.Severity, objects ...broker.Object) {
		s.Helper()
		checks, err := checker.Compare(s.ctx(), objects)
		s.must(err)
		if len(checks) != len(objects) {
			s.Fatalf("%d checks for %d objects", len(checks), len(objects))
		}
		for i, check := range checks {
			if check.Name != objects[i].Name || check.Severity != want || (want == doctor.OK) != (check.Remedy == holdfast.Hint{}) {
				s.Errorf("want severity %s: %+v", want, check)
			}
		}
	}
	topology := broker.NewTopology(name(), 1, "1")
	objects := append(topology.Queues([]string{"queue"}), topology.MarkerObject())
	compare(doctor.Failed, objects...)
	missing, err := checker.Missing(s.ctx(), objects)
	s.must(err)
	if len(missing) != len(objects) {
		s.Errorf("Compare created objects: of %d only %q are missing", len(objects), missing)
	}
	s.declare(objects...)
	compare(doctor.OK, objects...)

	other := objects[0]
	other.Args = map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(7)}
	compare(doctor.Failed, other)
	compare(doctor.OK, objects[0])
	compare(doctor.Failed, other)
}
