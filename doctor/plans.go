package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/contain"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

const (
	// maxPlans is the maximum number of plans of a kind that the doctor reads, and planPage the number that it reads at
	// once.
	maxPlans = 10_000
	planPage = 200
	// maxNames is the maximum number of plans that a check names.
	maxNames = 5
)

// examinePlans checks the plans of a kind. It calls add for each of them, which returns an error if this version cannot
// read the plan. report then adds a check for each problem that add has found. If there is no problem, the only check
// has the text that report returns.
func (e *examination) examinePlans(ctx context.Context, kind store.PlanKind, add func(store.Plan) error, report func(stored int) (ok string, err error)) {
	name := kindName(kind)
	var unknown []string
	stored, err := e.plans(ctx, kind, func(p store.Plan) {
		if add(p) != nil {
			unknown = append(unknown, planName(p))
		}
	})
	if err != nil {
		e.failed(name, err, holdfast.HintRetry)
		return
	}
	if len(unknown) > 0 {
		e.add(Check{
			Name: name, Severity: Warning, Remedy: holdfast.Advice("start janitors of the newer version; this version makes no steps of these " + name),
			Detail: fmt.Sprintf("a newer version has stored %s: %s", counted(int64(len(unknown)), string(kind), name), few(unknown)),
		})
	}
	ok, err := report(stored)
	switch {
	case err != nil:
		e.failed(name, err, holdfast.HintRetry)
	case !slices.ContainsFunc(e.Checks, func(c Check) bool { return c.Name == name }):
		e.ok(name, "%s", ok)
	}
}

// examineShardJobs checks that the steps of shard jobs succeed.
func (e *examination) examineShardJobs(ctx context.Context) {
	e.examinePlans(ctx, store.ShardKind, func(p store.Plan) error {
		_, _, err := plan.ReadShardJob(p)
		return err
	}, func(stored int) (string, error) {
		return counted(int64(stored), "shard job is stored", "shard jobs are stored") + ", and none fails", nil
	})
}

// plans calls visit for the stored plans of a kind, and returns their number. It adds a check if steps of some of them
// fail, or if visit fails for some.
func (e *examination) plans(ctx context.Context, kind store.PlanKind, visit func(store.Plan)) (stored int, err error) {
	var failing []string
	why := "" // of the first one
	for after := ""; stored < maxPlans; {
		page, err := e.store.ListPlans(ctx, store.PlanFilter{Kind: kind, After: after, Limit: planPage})
		if err != nil {
			return stored, err
		}
		for _, p := range page {
			problem := ""
			if err := contain.Call(func() error { visit(p); return nil }); err != nil {
				problem = err.Error()
			}
			if p.Failures > 0 {
				problem = fmt.Sprintf("%s (%s in a row)", p.Failure, counted(int64(p.Failures), "failure", "failures"))
			}
			if problem != "" {
				failing, why = append(failing, planName(p)), cmp.Or(why, problem)
			}
			after = p.Name
		}
		stored += len(page)
		if len(page) < planPage {
			break
		}
	}
	if len(failing) > 0 {
		e.add(Check{
			Name: kindName(kind), Severity: Failed, Remedy: holdfast.Advice("change or delete it; janitors try its step again after a pause of up to ten minutes"),
			Detail: fmt.Sprintf("the steps of %s fail: %s; the first because of: %s", counted(int64(len(failing)), string(kind), kindName(kind)), few(failing), why),
		})
	}
	return stored, nil
}

// similar has the names of plans with the same problem.
type similar struct {
	names   []string
	first   string        // what is wrong with the first one
	remedy  holdfast.Hint // for the first one
	longest time.Duration // the longest delay
}

func (s *similar) add(name string, remedy holdfast.Hint, format string, args ...any) {
	if len(s.names) == 0 {
		s.first, s.remedy = fmt.Sprintf(format, args...), remedy
	}
	s.names = append(s.names, name)
}

// delayed adds a plan that something did not reach in time.
func (s *similar) delayed(name string, remedy holdfast.Hint, delay time.Duration) {
	s.add(name, remedy, "")
	s.longest = max(s.longest, delay)
}

// reportFirst adds a warning if there are such plans. others introduces the names of all but the first one.
func (e *examination) reportFirst(kind store.PlanKind, s similar, others string) {
	if len(s.names) > 1 {
		s.first += "; " + others + few(s.names[1:])
	}
	if len(s.names) > 0 {
		e.add(Check{Name: kindName(kind), Severity: Warning, Detail: s.first, Remedy: s.remedy})
	}
}

// reportDelayed adds a check if there are such plans. format gets the longest delay.
func (e *examination) reportDelayed(kind store.PlanKind, s similar, severity Severity, format string) {
	if len(s.names) > 0 {
		is := counted(int64(len(s.names)), string(kind)+" is ", kindName(kind)+" are ")
		e.add(Check{
			Name: kindName(kind), Severity: severity, Remedy: s.remedy,
			Detail: is + fmt.Sprintf(format, s.longest.Round(time.Second)) + ": " + few(s.names),
		})
	}
}

// planName returns the name of a plan for people. Batches have their ids, because most have no name.
func planName(p store.Plan) string {
	if p.Kind == store.BatchKind {
		return p.ID.String()
	}
	return p.Name
}

// kindName returns the name of the checks of a kind of plan.
func kindName(kind store.PlanKind) string {
	if kind == store.BatchKind {
		return "batches"
	}
	return string(kind) + "s"
}

// few returns the first names, and the number of the others.
func few(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
