package brokertest

import (
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/broker"
)

// Examinable is a broker that can be asked how it is kept.
type Examinable interface {
	broker.Broker
	broker.Examiner
}

// RunExaminer tests the role Examiner. open returns a broker as for Run.
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
	findings, err := here.Server(s.ctx())
	s.must(err)
	if len(findings) == 0 {
		s.Error("nothing was looked at")
	}
	for _, f := range findings {
		if f.Check == "" || f.Detail == "" || (f.Grade == holdfast.GradeOK) != (f.Remedy == "") {
			s.Errorf("incomplete: %+v", f)
		}
		if f.Grade == holdfast.GradeFailed {
			s.Errorf("tests need a sound broker: %+v", f)
		}
	}
}

func testCompare(s *suite, here Examinable) {
	compare := func(want holdfast.Grade, objects ...broker.Object) {
		s.Helper()
		findings, err := here.Compare(s.ctx(), objects)
		s.must(err)
		if len(findings) != len(objects) {
			s.Fatalf("%d findings for %d objects", len(findings), len(objects))
		}
		for i, f := range findings {
			if f.Check != objects[i].Name || f.Grade != want || (want == holdfast.GradeOK) != (f.Remedy == "") {
				s.Errorf("want %s: %+v", want, f)
			}
		}
	}
	topology := broker.NewTopology(name(), 1, "1")
	objects := append(topology.Queues([]string{"lane"}), topology.MarkerObject())
	compare(holdfast.GradeFailed, objects...)
	missing, err := here.Missing(s.ctx(), objects)
	s.must(err)
	if len(missing) != len(objects) {
		s.Errorf("it has made what was missing: of %d only %q are", len(objects), missing)
	}
	s.declare(objects...)
	compare(holdfast.GradeOK, objects...)

	other := objects[0]
	other.Args = map[string]any{"x-queue-type": "quorum", "x-delivery-limit": int64(7)}
	compare(holdfast.GradeFailed, other)
	compare(holdfast.GradeOK, objects[0])
	compare(holdfast.GradeFailed, other)
}
