package faults

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
)

// Books are the records of a campaign.
type Books struct {
	Began            time.Time
	Took             time.Duration // duration of the faults, without the tasks that ran afterwards
	Broker, Database string        // versions
	Accepted         []Accepted
	Records          []Record
	Struck           []Struck
	Pauses           []Paused
	States           map[holdfast.TaskID]holdfast.State
	Workers          map[string]string // names of the workers' ends, by address
	Samples          []Sample          // measurements of a soak
	Pruned           bool              // finished tasks may have been deleted
	Problems         []string          // faults that could not be inflicted or repaired as planned
}

// Verdict is the result of Judge.
type Verdict struct {
	Accepted, Finished int      // numbers of tasks
	Lost               []string // a description of each lost task
	Unaccepted         int      // tasks that ran although their producer was killed before it recorded them
	Executions         int
	Planned            int          // executions that ended with a planned failure
	Long               int          // successful executions that took longer than the consumer timeout
	Extra              map[Kind]int // repeated executions, by the fault that explains them
	Unexplained        []string     // a description of each repeated execution that no fault explains
	SameAttempt        []string     // a description of each attempt that was executed twice
	Limited            int          // highest number of limited executions at the same time, with orphans
	Exceeded           []string     // a description of each time when more limited executions ran than allowed, without orphans
	Pauses             int          // number of pauses
	Held               int          // executions of a paused key's tasks
	Escaped            []string     // a description of each execution that began in a pause although no worker could have claimed its task before
	Times              map[Kind]int // number of faults
	// The next four have values for each fault that was alone. Lasted is its duration. Waited is the longest wait of
	// a task that became due during the fault or shortly after it. Restarted and Blocked have, for each interrupted
	// execution, the time until the next one began: Blocked if a pause or the limit blocked the task meanwhile.
	Lasted, Waited, Restarted, Blocked map[Kind][]time.Duration

	full []span // when limited executions took up the whole limit
}

// span is the time from Began to Ended.
type span struct{ Began, Ended time.Time }

// overlaps reports whether the spans share more than one instant.
func (s span) overlaps(o span) bool { return s.Began.Before(o.Ended) && o.Began.Before(s.Ended) }

// Broken reports whether a promise was broken.
func (v Verdict) Broken() bool {
	return len(v.Lost)+len(v.Unexplained)+len(v.SameAttempt)+len(v.Exceeded)+len(v.Escaped) > 0
}

// readLines reads a file of JSON lines and calls do for each value. Each line was written with one call, so that a kill
// leaves only complete lines.
func readLines[T any](path string, do func(T)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var value T
		if err := json.Unmarshal(lines.Bytes(), &value); err != nil {
			return fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		do(value)
	}
	return lines.Err()
}

// Judge compares the records of a campaign and returns the verdict.
func Judge(b Books) Verdict {
	v := Verdict{Extra: make(map[Kind]int), Times: make(map[Kind]int), Lasted: make(map[Kind][]time.Duration),
		Waited: make(map[Kind][]time.Duration), Restarted: make(map[Kind][]time.Duration), Blocked: make(map[Kind][]time.Duration)}
	byNumber := make(map[int][]Record)
	for _, r := range b.Records {
		byNumber[r.Number] = append(byNumber[r.Number], r)
	}
	for _, records := range byNumber {
		slices.SortFunc(records, func(a, b Record) int { return a.Began.Compare(b.Began) })
	}
	accepted := make(map[int]time.Time) // due times, by number
	for _, batch := range b.Accepted {
		for i, id := range batch.IDs {
			number := batch.First + i
			accepted[number] = batch.At.Add(time.Duration(batch.DelaysMS[i]) * time.Millisecond)
			state, there := b.States[id]
			if !there && b.Pruned {
				state = holdfast.Done // only done tasks are deleted
			}
			v.checkAccepted(number, id, state, byNumber[number])
		}
	}
	v.Accepted = len(accepted)
	v.checkLimit(b)
	var interrupted []interruption
	for number, records := range byNumber {
		if _, known := accepted[number]; !known {
			v.Unaccepted++
		}
		interrupted = append(interrupted, v.explain(b, records)...)
	}
	for _, s := range b.Struck {
		v.Times[s.Kind]++
	}
	v.checkPauses(b)
	v.measureRecovery(b, accepted, byNumber, interrupted)
	slices.Sort(v.Lost)
	slices.Sort(v.Unexplained)
	return v
}

// checkAccepted counts an accepted task as finished or lost.
func (v *Verdict) checkAccepted(number int, id holdfast.TaskID, state holdfast.State, records []Record) {
	answered := slices.ContainsFunc(records, func(r Record) bool { return r.Result == Answered })
	if state == holdfast.Done && answered {
		v.Finished++
		return
	}
	if state == "" {
		state = "missing"
	}
	v.Lost = append(v.Lost, fmt.Sprintf("task %s (number %d) is %s after %d executions, success answered: %t", id, number, state, len(records), answered))
}

// interruption is an execution that a fault interrupted.
type interruption struct {
	by       Struck
	at, next time.Time // when the execution was interrupted, and when the next one began
	blocked  bool      // a pause or the limit blocked the task between the two
}

// explain finds the reason of each repeated execution of a task. It counts the executions, and returns the first
// execution that a fault interrupted, if there is one.
func (v *Verdict) explain(b Books, records []Record) (interrupted []interruption) {
	v.Executions += len(records)
	seen := make(map[int]bool)
	crashed := 0
	for i, r := range records {
		if seen[r.Attempt] {
			v.SameAttempt = append(v.SameAttempt, fmt.Sprintf("number %d, attempt %d: %+v", r.Number, r.Attempt, records))
		}
		seen[r.Attempt] = true
		switch {
		case r.Result == Refused:
			v.Planned++
		case r.Result == Answered && r.Ended.Sub(r.Began) > consumerTimeout:
			v.Long++
		}
		if i+1 == len(records) || r.Result == Refused && !overlap(r, records[i+1]) {
			continue
		}
		s, found := b.reason(r)
		if !found {
			v.Unexplained = append(v.Unexplained, fmt.Sprintf("number %d: %+v, then %+v", r.Number, r, records[i+1]))
			continue
		}
		v.Extra[s.Kind]++
		if crashed++; crashed > 1 {
			continue // from its second crash on, a task waits on purpose
		}
		at := s.Began
		if len(s.Turns) > 0 { // it is unknown which of the turns interrupted the execution
			at = r.Ended
		}
		interrupted = append(interrupted, interruption{s, at, records[i+1].Began, v.blocked(b, r, records[i+1])})
	}
	return interrupted
}

// blocked reports whether the key of a task was paused, or other tasks took up its limit, between two of its executions.
func (v *Verdict) blocked(b Books, r, next Record) bool {
	waited := span{r.Ended, next.Began}
	return r.Paused && slices.ContainsFunc(b.Pauses, func(p Paused) bool { return waited.overlaps(span(p)) }) ||
		r.Limited && slices.ContainsFunc(v.full, waited.overlaps)
}

// checkLimit counts the limited executions that ran at the same time. An orphan is an execution that a fault may have
// taken away from its worker: it may go on, and its permit goes to another task. checkLimit also sets v.full.
func (v *Verdict) checkLimit(b Books) {
	type change struct {
		at     time.Time
		record Record
		by     int // +1 at the begin, -1 at the end
		orphan bool
	}
	var changes []change
	for _, r := range b.Records {
		if r.Limited {
			_, orphan := b.reason(r)
			changes = append(changes, change{r.Began, r, +1, orphan}, change{r.Ended, r, -1, orphan})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.by, b.by)) })
	all, owned := 0, 0
	for _, c := range changes {
		all += c.by
		if !c.orphan {
			owned += c.by
		}
		v.Limited = max(v.Limited, all)
		switch {
		case all >= limitedAtOnce && c.by > 0 && all-c.by < limitedAtOnce:
			v.full = append(v.full, span{Began: c.at})
		case all < limitedAtOnce && c.by < 0 && all-c.by >= limitedAtOnce:
			v.full[len(v.full)-1].Ended = c.at
		}
		if owned > limitedAtOnce && c.by > 0 && !c.orphan {
			v.Exceeded = append(v.Exceeded, fmt.Sprintf("%d limited executions run at the same time, the last one is %+v", owned, c.record))
		}
	}
}

// checkPauses finds the executions that began in a pause. A worker may start what it has claimed before the pause until
// its lease ends. A worker that a fault has delayed may start it later, and that execution is an orphan.
func (v *Verdict) checkPauses(b Books) {
	v.Pauses = len(b.Pauses)
	for _, r := range b.Records {
		if !r.Paused {
			continue
		}
		v.Held++
		for _, p := range b.Pauses {
			if _, orphan := b.reason(r); !orphan && r.Began.After(p.Began.Add(lease)) && r.Began.Before(p.Ended) {
				v.Escaped = append(v.Escaped, fmt.Sprintf("%+v begins in the pause from %s to %s", r, p.Began, p.Ended))
			}
		}
	}
}

// overlap reports whether the next execution began before r ended.
func overlap(r, next Record) bool { return next.Began.Before(r.Ended) }

// resultWindow is the longest time from the answer to an execution until its result is in the store.
const resultWindow = 2 * time.Second

// reason returns the last fault that can have interrupted an execution or can have prevented the write of its result.
func (b Books) reason(r Record) (reason Struck, found bool) {
	for _, s := range b.Struck {
		var turns []Turn
		switch traitOf(s.Kind).reach {
		case hitsStore:
			turns = []Turn{{Began: s.Began, Ended: s.Ended}}
		case hitsWorkers:
			turns = s.turns(b.Workers[r.From])
		}
		possible := slices.ContainsFunc(turns, func(t Turn) bool {
			// A fault has effects until the leases have expired and until workers that were cut off have reconnected.
			return !r.Began.After(t.Ended.Add(lease)) && !r.Ended.Before(t.Began.Add(-resultWindow))
		})
		if possible && (!found || s.Began.After(reason.Began)) {
			reason, found = s, true
		}
	}
	return reason, found
}

// measureRecovery measures the cost of each fault that was alone. If two faults coincide, their costs cannot be
// separated.
func (v *Verdict) measureRecovery(b Books, due map[int]time.Time, byNumber map[int][]Record, interrupted []interruption) {
	for _, s := range b.Struck {
		if !s.Alone {
			continue
		}
		for _, i := range interrupted {
			if i.by.Kind == s.Kind && i.by.Began.Equal(s.Began) {
				waits := v.Restarted
				if i.blocked {
					waits = v.Blocked
				}
				waits[s.Kind] = append(waits[s.Kind], i.next.Sub(i.at))
			}
		}
		var longest time.Duration
		for number, at := range due {
			records := byNumber[number]
			if len(records) > 0 && !records[0].Limited && !records[0].Paused && at.After(s.Began) && at.Before(s.Ended.Add(recoveryWindow)) {
				longest = max(longest, records[0].Began.Sub(at))
			}
		}
		v.Waited[s.Kind] = append(v.Waited[s.Kind], longest)
		v.Lasted[s.Kind] = append(v.Lasted[s.Kind], s.Ended.Sub(s.Began))
	}
}

// recoveryWindow is the time after a fault in which it can still delay new tasks. It is the shortest pause between two
// acts.
const recoveryWindow = 4 * time.Second
