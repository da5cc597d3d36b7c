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
	// maxStepDelay is a delay that no step of a schedule has while a janitor works.
	maxStepDelay = time.Minute
	// maxPlans is the maximum number of schedules and of sources that the doctor reads, and planPage the number that it
	// reads at once.
	maxPlans = 10_000
	planPage = 200
	// maxNames is the maximum number of schedules or sources that a check names.
	maxNames = 5
)

// schedules has the names of the schedules with problems, and details of the first schedule with each.
type schedules struct {
	late, unknown, paused, ahead []string
	lateFor                      time.Duration // of the schedule that is the latest
	pausedBy                     string        // why the first schedule has paused itself
	next, left                   time.Time     // the next moment of the first schedule ahead, and its first moment from now on
}

// examineSchedules checks that janitors make the steps of schedules, and that no schedule has stopped without a decision
// of a person.
func (e *examination) examineSchedules(ctx context.Context, now time.Time) {
	var found schedules
	stored, err := e.plans(ctx, store.ScheduleKind, func(p store.Plan) { found.add(p, now) })
	if err != nil {
		e.failed("schedules", err, holdfast.HintRetry)
		return
	}
	e.reportSchedules(found, stored)
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

// okUnless adds a check that is OK, unless there is already a check with the name.
func (e *examination) okUnless(name, detail string, args ...any) {
	if !slices.ContainsFunc(e.Checks, func(c Check) bool { return c.Name == name }) {
		e.ok(name, detail, args...)
	}
}

// examineShardJobs checks that the steps of shard jobs succeed.
func (e *examination) examineShardJobs(ctx context.Context) {
	name := kindName(store.ShardKind)
	var unknown []string
	stored, err := e.plans(ctx, store.ShardKind, func(p store.Plan) {
		if _, _, err := plan.ReadShardJob(p); err != nil {
			unknown = append(unknown, p.Name)
		}
	})
	if err != nil {
		e.failed(name, err, holdfast.HintRetry)
		return
	}
	if len(unknown) > 0 {
		e.add(Check{
			Name: name, Severity: Warning, Remedy: holdfast.Advice("start janitors of the newer version; this version makes no steps of these shard jobs"),
			Detail: fmt.Sprintf("a newer version has stored %s: %s", counted(int64(len(unknown)), "shard job", "shard jobs"), few(unknown)),
		})
	}
	e.okUnless(name, "%s, and none fails", counted(int64(stored), "shard job is stored", "shard jobs are stored"))
}

// add sorts a schedule into the lists of problems that it has.
func (s *schedules) add(p store.Plan, now time.Time) {
	spec, progress, err := plan.ReadSchedule(p)
	if err != nil {
		s.unknown = append(s.unknown, p.Name)
		return
	}
	if p.State == store.PlanPaused && progress.PausedBy != "" {
		if len(s.paused) == 0 {
			s.pausedBy = progress.PausedBy
		}
		s.paused = append(s.paused, p.Name)
	}
	if p.State != store.PlanRunning {
		return
	}
	if late := now.Sub(p.NextAt); !p.NextAt.IsZero() && late > maxStepDelay {
		s.late, s.lateFor = append(s.late, p.Name), max(s.lateFor, late)
	}
	// The next moment of a schedule is never later than its first moment from now on, unless the clock was set back.
	// A small step of the clock is no problem.
	moments, err := spec.Moments(now.Add(maxStepDelay), 1)
	if err == nil && len(moments) > 0 && moments[0].Before(progress.Next) && spec.BackfillOf == "" {
		if len(s.ahead) == 0 {
			s.next, s.left = progress.Next, moments[0]
		}
		s.ahead = append(s.ahead, p.Name)
	}
}

// reportSchedules adds a check for each kind of problem, or one if there is none.
func (e *examination) reportSchedules(s schedules, stored int) {
	add := func(severity Severity, remedy holdfast.Hint, format string, args ...any) {
		e.add(Check{Name: "schedules", Severity: severity, Detail: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	if len(s.late) > 0 {
		remedy := holdfast.Hint{Kind: holdfast.HintServeJanitor}
		if e.janitorActive() {
			remedy = holdfast.Advice("look at the logs of the janitors; a janitor of an older version makes no steps of schedules")
		}
		add(Failed, remedy, "%s late by up to %s, because no janitor has made the step: %s",
			counted(int64(len(s.late)), "schedule is", "schedules are"), s.lateFor.Round(time.Second), few(s.late))
	}
	if len(s.unknown) > 0 {
		add(Warning, holdfast.Advice("start janitors of the newer version; this version makes no steps of these schedules"),
			"a newer version has stored %s: %s", counted(int64(len(s.unknown)), "schedule", "schedules"), few(s.unknown))
	}
	if len(s.paused) > 0 {
		detail := fmt.Sprintf("the schedule %s has paused itself, because %s", s.paused[0], s.pausedBy)
		if others := s.paused[1:]; len(others) > 0 {
			detail += "; others have paused themselves, too: " + few(others)
		}
		add(Warning, holdfast.Hint{Kind: holdfast.HintResumeSchedule, Arg: s.paused[0]}, "%s", detail)
	}
	if len(s.ahead) > 0 {
		detail := fmt.Sprintf("the schedule %s stores no task before %s, although one of its moments is %s: the clock of the store was set back",
			s.ahead[0], s.next.UTC().Format(time.RFC3339), s.left.UTC().Format(time.RFC3339))
		if others := s.ahead[1:]; len(others) > 0 {
			detail += "; the same is true of " + few(others)
		}
		add(Warning, holdfast.Hint{Kind: holdfast.HintRestartSchedule, Arg: s.ahead[0]}, "%s", detail)
	}
	e.okUnless("schedules", "%s, none is late, and none has paused itself", counted(int64(stored), "schedule is stored", "schedules are stored"))
}

// janitorActive reports whether the check of the janitors has found an active one.
func (e *examination) janitorActive() bool {
	for _, c := range e.Checks {
		if c.Name == "janitors" {
			return c.Severity == OK
		}
	}
	return false
}

// few returns the first names, and the number of the others.
func few(names []string) string {
	text := strings.Join(names[:min(len(names), maxNames)], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
