package doctor

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// maxStepDelay is a delay that no step of a schedule has while a janitor works.
const maxStepDelay = time.Minute

// examineSchedules checks that janitors make the steps of schedules, and that no schedule has stopped without a decision
// of a person.
func (e *examination) examineSchedules(ctx context.Context, now time.Time) {
	var late, paused, ahead similar
	remedy := holdfast.Hint{Kind: holdfast.HintServeJanitor}
	if e.janitorActive() {
		remedy = holdfast.Advice("look at the logs of the janitors; a janitor of an older version makes no steps of schedules")
	}
	e.examinePlans(ctx, store.ScheduleKind, func(p store.Plan) error {
		spec, progress, err := plan.ReadSchedule(p)
		if err != nil {
			return err
		}
		if p.State == store.PlanPaused && progress.PausedBy != "" {
			paused.add(p.Name, holdfast.Hint{Kind: holdfast.HintResumeSchedule, Arg: p.Name},
				"the schedule %s has paused itself, because %s", p.Name, progress.PausedBy)
		}
		if p.State != store.PlanRunning {
			return nil
		}
		if delay := now.Sub(p.NextAt); !p.NextAt.IsZero() && delay > maxStepDelay {
			late.delayed(p.Name, remedy, delay)
		}
		// The next moment of a schedule is never later than its first moment from now on, unless the clock was set back.
		// A small step of the clock is no problem.
		moments, err := spec.Moments(now.Add(maxStepDelay), 1)
		if err == nil && len(moments) > 0 && moments[0].Before(progress.Next) && spec.BackfillOf == "" {
			ahead.add(p.Name, holdfast.Hint{Kind: holdfast.HintRestartSchedule, Arg: p.Name},
				"the schedule %s stores no task before %s, although one of its moments is %s: the clock of the store was set back",
				p.Name, progress.Next.UTC().Format(time.RFC3339), moments[0].UTC().Format(time.RFC3339))
		}
		return nil
	}, func(stored int) (string, error) {
		e.reportDelayed(store.ScheduleKind, late, Failed, "late by up to %s, because no janitor has made the step")
		e.reportFirst(store.ScheduleKind, paused, "others have paused themselves, too: ")
		e.reportFirst(store.ScheduleKind, ahead, "the same is true of ")
		return counted(int64(stored), "schedule is stored", "schedules are stored") + ", none is late, and none has paused itself", nil
	})
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
