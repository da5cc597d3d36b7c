package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

func TestTheWorstFindingCounts(t *testing.T) {
	t.Parallel()
	var e Examination
	for _, grade := range []holdfast.Grade{holdfast.GradeOK, holdfast.GradeSkipped, holdfast.GradeWarning, holdfast.GradeFailed} {
		e.Findings = append([]holdfast.Finding{{Grade: grade}}, e.Findings...)
		if got := e.Worst(); got != grade {
			t.Errorf("worst is %s, want %s", got, grade)
		}
	}
}

func TestAnErrorBecomesAFinding(t *testing.T) {
	t.Parallel()
	e := &examiner{}
	e.failed("a", fmt.Errorf("%w: bad value; set another", holdfast.ErrInvalid), "not this")
	e.failed("b", errors.New("no idea"), "look there")
	if e.Unreachable {
		t.Error("no server was asked")
	}
	e.failed("c", fmt.Errorf("%w: refused", holdfast.ErrUnavailable), "")
	if !e.Unreachable {
		t.Error("a server did not answer")
	}
	for i, want := range []holdfast.Finding{{Check: "a", Detail: "bad value", Remedy: "set another"}, {Check: "b", Detail: "no idea", Remedy: "look there"}} {
		if want.Grade = holdfast.GradeFailed; e.Findings[i] != want {
			t.Errorf("got %+v", e.Findings[i])
		}
	}
	if e.Findings[2].Remedy == "" {
		t.Error("nothing to do about an error without a hint")
	}
}

func TestWorkIsJudged(t *testing.T) {
	t.Parallel()
	late := []store.Lane{{Name: "a", Due: 2, OldestDue: time.Minute}, {Name: "b", Due: 5, OldestDue: time.Second}}
	all := []store.Run{{RunInfo: store.RunInfo{Name: "ann", Concurrency: 4}, Running: 3}}
	for name, c := range map[string]struct {
		judge func(*examiner)
		grade holdfast.Grade
		text  string
	}{
		"workers":              {func(e *examiner) { e.examineWorkers(all, late) }, holdfast.GradeOK, "1 lives: 3 of 4 handlers"},
		"no workers":           {func(e *examiner) { e.examineWorkers(nil, nil) }, holdfast.GradeWarning, "none lives"},
		"no workers, and work": {func(e *examiner) { e.examineWorkers(nil, late) }, holdfast.GradeFailed, "2 tasks are due, the first for 1m0s"},
		"never restored":       {func(e *examiner) { e.examineSetback(time.Now(), time.Time{}) }, holdfast.GradeOK, "no worker"},
		"restored":             {func(e *examiner) { e.examineSetback(time.Now(), time.Now().Add(-time.Hour)) }, holdfast.GradeWarning, "1h0m0s ago"},
		"restored long ago":    {func(e *examiner) { e.examineSetback(time.Now(), time.Now().Add(-48*time.Hour)) }, holdfast.GradeOK, "no worker"},
		"lanes":                {func(e *examiner) { e.examineLanes(t.Context(), all, late) }, holdfast.GradeOK, ""},
		"a draining worker": {func(e *examiner) {
			e.examineLanes(t.Context(), []store.Run{{Draining: true}}, late)
		}, holdfast.GradeFailed, "a: 2 tasks are due, the first for 1m0s, and no live worker"},
		"a lane of others": {func(e *examiner) {
			e.examineLanes(t.Context(), []store.Run{{RunInfo: store.RunInfo{Lanes: []string{"b"}}}}, late)
		}, holdfast.GradeFailed, "holdfast serve --lanes a"},
	} {
		e := &examiner{Backend: &Backend{}}
		c.judge(e)
		if f := e.Findings[0]; len(e.Findings) != 1 || f.Grade != c.grade || !strings.Contains(f.Detail+f.Remedy, c.text) {
			t.Errorf("%s: %+v", name, e.Findings)
		}
	}
}

func TestObjectsAreSummedUp(t *testing.T) {
	t.Parallel()
	e := &examiner{Backend: &Backend{Config: configs.Config{}}}
	object := func(name, detail string) holdfast.Finding {
		grade := holdfast.GradeFailed
		if detail == "" {
			grade = holdfast.GradeOK
		}
		return holdfast.Finding{Check: name, Grade: grade, Detail: detail, Remedy: "r"}
	}
	got := e.summed([]holdfast.Finding{object("q1", ""), object("q2", "missing"), object("q3", "x-message-ttl is 1"), object("q4", "missing"), object("m", "missing")})
	text := ""
	for _, f := range got {
		text += fmt.Sprintf("%s %s %s\n", f.Check, f.Grade, f.Detail)
	}
	if want := `topology failed q3: x-message-ttl is 1
topology failed 2 of 4 queues are missing: q2, q4
marker failed missing: this broker was wiped, or never had the queues of this store
`; text != want {
		t.Errorf("got\n%s", text)
	}
	got = e.summed([]holdfast.Finding{object("q1", ""), object("m", "")})
	if len(got) != 2 || got[0].Detail != "1 queue is as it should be" || got[1].Grade != holdfast.GradeOK {
		t.Errorf("got %+v", got)
	}
}
