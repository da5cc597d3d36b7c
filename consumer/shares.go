package consumer

import "github.com/holdfastq/holdfast"

// levels is the number of priorities.
const levels = int(holdfast.PriorityCritical-holdfast.PriorityLow) + 1

// level is a priority as an index.
func level(p holdfast.Priority) int { return int(p - holdfast.PriorityLow) }

// weights are the shares of the priorities while tasks of all priorities wait; see holdfast.Priority.
var weights = [levels]float64{1, 2, 4, 8}

// shares selects the priority whose tasks start next. It implements start-time fair queueing (Goyal, Vin and Cheng
// 1996), with virtual times in tasks per weight. A priority that had no tasks goes first. A priority that always has
// tasks gets its share in the long run. The zero value is ready to use. It is not safe for concurrent use.
type shares struct {
	clock float64         // start tag of the tasks that started last
	after [levels]float64 // finish tag of each priority
}

// begin returns the start tag of the next task of a priority.
func (s *shares) begin(level int) float64 { return max(s.clock, s.after[level]) }

// next returns which of the wanted priorities starts a task first, or -1 if none is wanted.
func (s *shares) next(wanted func(level int) bool) int {
	first := -1
	for l := levels - 1; l >= 0; l-- {
		if wanted(l) && (first < 0 || s.begin(l) < s.begin(first)) {
			first = l
		}
	}
	return first
}

// started records that n tasks of a priority start.
func (s *shares) started(level, n int) {
	s.clock = s.begin(level)
	s.after[level] = s.clock + float64(n)/weights[level]
}
