package janitor

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/backoff"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/store"
)

const (
	// verifyEvery is the time between two checks over all janitors. verifyTick is the interval at which each janitor
	// tries to take the turn.
	verifyEvery = 15 * time.Second
	verifyTick  = 5 * time.Second
	// verifySteps is the maximum number of steps of the part VerifyAll in one check if nothing indicates a fault, and
	// verifyBudget is their maximum time. The next check continues from there. In PostgreSQL a step reads 20,000 ids in
	// 4 ms if processor and memory are free. So checks need less than 1 % of a core, and read 500,000 tasks in half a
	// minute.
	verifySteps  = 15
	verifyBudget = time.Second
	// verifyPause is the pause between two steps. Other statements run in it.
	verifyPause = 5 * time.Millisecond
	maxFindings = 10_000
	maxSamples  = 20
)

// VerifyStore is the part of a store that Verify uses.
type VerifyStore interface {
	store.Verification
}

// VerifyOptions configures Verify. The zero value is ready to use.
type VerifyOptions struct {
	// Limits are the times after which a state is a fault. Zero means a slack of 30 s, and a minute for each other
	// limit.
	Limits store.VerifyLimits
	// Confirm is the time between the two passes of a check; 0 means 10 s. A fault that the second pass does not find
	// is dropped. After an outage, janitors and workers need this time for repairs.
	Confirm time.Duration
	// Steps limits the number of steps of the part VerifyAll if nothing indicates a fault, and Budget limits their
	// time. 0 means no limit.
	Steps  int
	Budget time.Duration
	// MaxFindings is the maximum number of tasks that a pass finds in one part; 0 means 10,000.
	MaxFindings int
	// Progress, if set, is called after each step.
	Progress func(part store.VerifyPart, through holdfast.TaskID)
}

func (o *VerifyOptions) complete() {
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&o.Limits.Slack, 30 * time.Second}, {&o.Limits.Overdue, time.Minute}, {&o.Limits.Orphan, time.Minute}, {&o.Confirm, 10 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if o.MaxFindings == 0 {
		o.MaxFindings = maxFindings
	}
	if o.Progress == nil {
		o.Progress = func(store.VerifyPart, holdfast.TaskID) {}
	}
}

// VerifyReport is the result of Verify.
type VerifyReport struct {
	Results  []store.VerifyResult // one for each part
	Findings []store.Finding      // at most MaxFindings of each part
	Full     bool                 // a pass has found MaxFindings tasks of a part, so there may be more
}

// Verify finds tasks that break an invariant of the design, stores the result and returns it. It makes two passes,
// Confirm apart, and reports a task only if both find it. Verify changes no task. Any number of processes may call it.
//
// With a limit, and if nothing indicates a fault, Verify may read only a section of VerifyAll. Then the result of that
// part is Incomplete and has no counts, and the next call continues.
func Verify(ctx context.Context, s VerifyStore, o VerifyOptions) (VerifyReport, error) {
	report := VerifyReport{}
	o.complete()
	c := check{store: s, o: o}
	results, found, err := c.look(ctx)
	if err != nil {
		return report, err
	}
	if len(found) > 0 {
		if err := backoff.Sleep(ctx, o.Confirm); err != nil {
			return report, err
		}
	}
	for i := range results {
		part := results[i].Part
		if len(found[part]) > 0 {
			report.Full = report.Full || len(found[part]) == o.MaxFindings
			again, _, err := c.scan(ctx, part, 0, false)
			if err != nil {
				return report, err
			}
			confirmed := inBoth(found[part], again)
			results[i].Counts = countFaults(confirmed)
			report.Findings = append(report.Findings, confirmed...)
		}
		if err := s.StoreVerifyResult(ctx, results[i]); err != nil {
			return report, err
		}
	}
	report.Results = results
	return report, nil
}

// check is one call of Verify.
type check struct {
	store VerifyStore
	o     VerifyOptions
}

// look makes one pass over all parts. It returns a result without counts for each part, and the findings.
func (c *check) look(ctx context.Context) (results []store.VerifyResult, found map[store.VerifyPart][]store.Finding, err error) {
	stored, err := c.store.VerifyResults(ctx)
	if err != nil {
		return nil, nil, err
	}
	before := make(map[store.VerifyPart]store.VerifyResult)
	for _, result := range stored {
		before[result.Part] = result
	}
	found = make(map[store.VerifyPart][]store.Finding)
	for _, part := range store.VerifyParts() {
		result := store.VerifyResult{Part: part}
		var findings []store.Finding
		if part == store.VerifyAll {
			result, findings, err = c.lookAtAll(ctx, before[part])
		} else {
			findings, _, err = c.scan(ctx, part, 0, false)
		}
		if err != nil {
			return nil, nil, err
		}
		if len(findings) > 0 {
			found[part] = findings
		}
		results = append(results, result)
	}
	return results, found, nil
}

// lookAtAll checks all tasks. Within the limits, it continues the last check if nothing indicates a fault.
func (c *check) lookAtAll(ctx context.Context, before store.VerifyResult) (store.VerifyResult, []store.Finding, error) {
	result := store.VerifyResult{Part: store.VerifyAll}
	if (c.o.Steps > 0 || c.o.Budget > 0) && len(before.Counts) == 0 {
		suspicious, err := c.store.Suspicious(ctx, c.o.Limits)
		if err != nil {
			return result, nil, err
		}
		if !suspicious {
			findings, next, err := c.scan(ctx, store.VerifyAll, before.Resume, true)
			if err != nil || len(findings) == 0 {
				result.Resume, result.Incomplete = next, next != 0
				return result, nil, err
			}
		}
	}
	findings, _, err := c.scan(ctx, store.VerifyAll, 0, false)
	return result, findings, err
}

// scan makes the steps of a part for ids greater than after, to the end or up to the limits. It returns the findings,
// and the id after which to continue, or 0 at the end.
func (c *check) scan(ctx context.Context, part store.VerifyPart, after holdfast.TaskID, limited bool) (found []store.Finding, next holdfast.TaskID, err error) {
	spent := time.Duration(0)
	for steps := 1; ; steps++ {
		began := time.Now()
		step, err := c.store.VerifyStep(ctx, part, after, c.o.Limits)
		if err != nil {
			return nil, 0, err
		}
		found = append(found, step.Findings...)
		c.o.Progress(part, step.Next)
		if after = step.Next; after == 0 || len(found) >= c.o.MaxFindings {
			return found[:min(len(found), c.o.MaxFindings)], 0, nil
		}
		spent += time.Since(began)
		if limited && (steps == c.o.Steps || c.o.Budget > 0 && spent >= c.o.Budget) {
			return found, after, nil
		}
		if err := backoff.Sleep(ctx, verifyPause); err != nil {
			return nil, 0, err
		}
	}
}

// inBoth returns the findings that are in both lists.
func inBoth(first, second []store.Finding) []store.Finding {
	seen := make(map[store.Finding]bool, len(first))
	for _, f := range first {
		seen[f] = true
	}
	return slices.DeleteFunc(second, func(f store.Finding) bool { return !seen[f] })
}

// countFaults counts findings by code, in the order of store.Faults.
func countFaults(findings []store.Finding) (counts []store.FaultCount) {
	for _, fault := range store.Faults() {
		found := store.FaultCount{Code: fault.Code}
		for _, f := range findings {
			if f.Code != fault.Code {
				continue
			}
			if found.Tasks++; len(found.Samples) < maxSamples {
				found.Samples = append(found.Samples, f.Task)
			}
		}
		if found.Tasks > 0 {
			counts = append(counts, found)
		}
	}
	return counts
}

// verify checks the tasks if it is this janitor's turn, and takes zombies back.
func (j *Janitor) verify(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "verify", verifyEvery)
	if err != nil || !myTurn {
		return err
	}
	options := j.verifyOptions()
	options.Steps, options.Budget, options.Limits.Counted = verifySteps, verifyBudget, true
	report, err := Verify(ctx, j.o.Store, options)
	if err != nil {
		return err
	}
	for _, result := range report.Results {
		for _, found := range result.Counts {
			j.o.Log.WithField("fault", found.Code).WithField("tasks", found.Tasks).WithField("sample", found.Samples[0]).
				Warn("tasks break an invariant")
		}
	}
	_, err = j.repairFindings(ctx, report.Findings)
	return err
}

// verifyOptions returns the options of a check with the times of this janitor.
func (j *Janitor) verifyOptions() VerifyOptions {
	return VerifyOptions{Limits: store.VerifyLimits{Slack: j.o.SentinelSlack}, Confirm: max(10*time.Second, 2*j.quietPeriod())}
}

// repairFindings gives lost tasks a new ticket, and takes zombies back. Other duties also do this, but they do not find
// tasks that were changed by hand. It returns how many tasks it has changed.
func (j *Janitor) repairFindings(ctx context.Context, findings []store.Finding) (repaired int, err error) {
	var tickets []message.Ticket
	for _, f := range findings {
		if fault, _ := store.FaultOf(f.Code); fault.Kind == store.Lost || fault.Kind == store.Zombie || f.Code == store.OverdueTicket {
			tickets = append(tickets, message.Ticket{Task: f.Task, Attempt: math.MaxInt32}) // the row decides the attempt
		}
	}
	for part := range slices.Chunk(tickets, message.MaxTickets) {
		_, n, err := j.repairTasks(ctx, part)
		if repaired += n; err != nil {
			return repaired, err
		}
	}
	return repaired, nil
}

// repairFaults checks the tasks and repairs its findings. It repeats this until a check has read everything, or found
// nothing that can be repaired. It returns how many tasks it has changed.
func (j *Janitor) repairFaults(ctx context.Context, o VerifyOptions) (repaired int, err error) {
	for {
		report, err := Verify(ctx, j.o.Store, o)
		if err != nil {
			return repaired, err
		}
		n, err := j.repairFindings(ctx, report.Findings)
		if repaired += n; err != nil || n == 0 || !report.Full {
			return repaired, err
		}
	}
}
