package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
)

// Books are what everybody wrote down.
type Books struct {
	Began            time.Time
	Took             time.Duration // of the faults, without what was left to do afterwards
	Broker, Database string        // versions
	Accepted         []Accepted
	Records          []Record
	Struck           []Struck
	States           map[holdfast.TaskID]holdfast.State
	Workers          map[string]string // end by address
	Samples          []Sample          // of a soak
	Pruned           bool              // finished tasks may have been deleted since
	Problems         []string          // faults that could not be inflicted, or not be mended at first
}

// Verdict is what the books say together.
type Verdict struct {
	Accepted, Finished int
	Lost               []string // what is known of each
	Unaccepted         int      // tasks that ran though their producer died before it could write them down
	Executions         int
	Planned            int          // executions that ended in a planned failure
	Long               int          // answered executions that took longer than the consumer timeout
	Extra              map[Kind]int // executions beyond the first, by the fault that explains them
	Unexplained        []string
	SameAttempt        []string // one attempt that was executed twice
	Times              map[Kind]int
	// Of each fault that was alone: how long it lasted, and the longest wait of a task that became due meanwhile or
	// shortly afterwards; and of each execution that it broke off, when the next began.
	Lasted, Waited, Restarted map[Kind][]time.Duration
}

// Broken reports whether a promise was broken.
func (v Verdict) Broken() bool { return len(v.Lost)+len(v.Unexplained)+len(v.SameAttempt) > 0 }

// each reads a file of JSON lines. Each of them was written at once, so that a kill leaves whole ones.
func each[T any](path string, do func(T)) error {
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

// Judge compares the books.
func Judge(b Books) Verdict {
	v := Verdict{Extra: make(map[Kind]int), Times: make(map[Kind]int), Lasted: make(map[Kind][]time.Duration),
		Waited: make(map[Kind][]time.Duration), Restarted: make(map[Kind][]time.Duration)}
	byNumber := make(map[int][]Record)
	for _, r := range b.Records {
		byNumber[r.Number] = append(byNumber[r.Number], r)
	}
	for _, records := range byNumber {
		slices.SortFunc(records, func(a, b Record) int { return a.Began.Compare(b.Began) })
	}
	accepted := make(map[int]time.Time) // and due
	for _, batch := range b.Accepted {
		for i, id := range batch.IDs {
			number := batch.First + i
			accepted[number] = batch.At.Add(time.Duration(batch.DelaysMS[i]) * time.Millisecond)
			state, there := b.States[id]
			if !there && b.Pruned {
				state = holdfast.Done // only such tasks are deleted
			}
			v.finish(number, id, state, byNumber[number])
		}
	}
	v.Accepted = len(accepted)
	var broken []brokenOff
	for number, records := range byNumber {
		if _, known := accepted[number]; !known {
			v.Unaccepted++
		}
		broken = append(broken, v.explain(b, records)...)
	}
	for _, s := range b.Struck {
		v.Times[s.Kind]++
	}
	v.recover(b, accepted, byNumber, broken)
	slices.Sort(v.Lost)
	slices.Sort(v.Unexplained)
	return v
}

// finish checks an accepted task.
func (v *Verdict) finish(number int, id holdfast.TaskID, state holdfast.State, records []Record) {
	answered := slices.ContainsFunc(records, func(r Record) bool { return r.Result == Answered })
	if state == holdfast.Done && answered {
		v.Finished++
		return
	}
	if state == "" {
		state = "not there"
	}
	v.Lost = append(v.Lost, fmt.Sprintf("task %s (number %d) is %s after %d executions, answered with success: %t", id, number, state, len(records), answered))
}

// brokenOff is an execution that a fault broke off, when that was seen, and when the next one began.
type brokenOff struct {
	by         Struck
	off, again time.Time
}

// explain looks for the reason of every execution beyond the first.
func (v *Verdict) explain(b Books, records []Record) (broken []brokenOff) {
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
			v.Unexplained = append(v.Unexplained, fmt.Sprintf("number %d: %+v, and again: %+v", r.Number, r, records[i+1]))
			continue
		}
		v.Extra[s.Kind]++
		if crashed++; crashed > 1 {
			continue // and waits on purpose
		}
		off := s.Began
		if len(s.Turns) > 0 { // which one of them broke it off, nobody says
			off = r.Ended
		}
		broken = append(broken, brokenOff{s, off, records[i+1].Began})
	}
	return broken
}

func overlap(r, next Record) bool { return next.Began.Before(r.Ended) }

// unwritten is how long after its answer the result of an execution may still be on its way to the store.
const unwritten = 2 * time.Second

// reason finds the fault that broke an execution off, or kept its result from being written: the last that can have.
func (b Books) reason(r Record) (reason Struck, found bool) {
	for _, s := range b.Struck {
		var turns []Turn
		switch traitOf(s.Kind).reach {
		case hitsStore:
			turns = []Turn{{Began: s.Began, Ended: s.Ended}}
		case hitsWorkers:
			turns = s.turns(b.Workers[r.From])
		}
		can := slices.ContainsFunc(turns, func(t Turn) bool {
			// While leases run out, and while a worker that was cut off finds its way back, it is still that fault.
			return !r.Began.After(t.Ended.Add(lease)) && !r.Ended.Before(t.Began.Add(-unwritten))
		})
		if can && (!found || s.Began.After(reason.Began)) {
			reason, found = s, true
		}
	}
	return reason, found
}

// recover measures what each fault cost. Only faults that were alone count, for nobody can say which of two it was.
func (v *Verdict) recover(b Books, due map[int]time.Time, byNumber map[int][]Record, broken []brokenOff) {
	for _, s := range b.Struck {
		if !s.Alone {
			continue
		}
		for _, o := range broken {
			if o.by.Kind == s.Kind && o.by.Began.Equal(s.Began) {
				v.Restarted[s.Kind] = append(v.Restarted[s.Kind], o.again.Sub(o.off))
			}
		}
		var longest time.Duration
		for number, at := range due {
			records := byNumber[number]
			if len(records) > 0 && at.After(s.Began) && at.Before(s.Ended.Add(aftermath)) {
				longest = max(longest, records[0].Began.Sub(at))
			}
		}
		v.Waited[s.Kind] = append(v.Waited[s.Kind], longest)
		v.Lasted[s.Kind] = append(v.Lasted[s.Kind], s.Ended.Sub(s.Began))
	}
}

// aftermath is how long after its end new tasks still feel a fault: the least calm between two acts.
const aftermath = 4 * time.Second
