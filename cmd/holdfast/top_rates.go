package main

import (
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// topWindow is the time over which rates are computed.
const topWindow = 10 * time.Second

// topSample has the numbers of tasks of one reading.
type topSample struct {
	at     time.Time
	states map[holdfast.State]int64
	stored map[string]int64 // by subqueue, in all states
	done   map[string]int64 // by subqueue
}

func sampleOf(at time.Time, groups []store.CountGroup) topSample {
	s := topSample{at: at, states: make(map[holdfast.State]int64), stored: make(map[string]int64), done: make(map[string]int64)}
	for _, g := range groups {
		queue := holdfast.Subqueue(g.Queue, g.Priority)
		s.states[g.State] += g.Tasks
		s.stored[queue] += g.Tasks
		if g.State == holdfast.Done {
			s.done[queue] += g.Tasks
		}
	}
	return s
}

// topMeter computes rates from the differences of samples.
type topMeter struct{ samples []topSample }

// add adds a sample, and drops those that are older than the window, but keeps at least two.
func (m *topMeter) add(s topSample) {
	m.samples = append(m.samples, s)
	for len(m.samples) > 2 && s.at.Sub(m.samples[0].at) > topWindow {
		m.samples = m.samples[1:]
	}
}

// rate returns by how much a number increases per second. It leaves out the intervals in which the number has fallen,
// because tasks were deleted or revived then. It returns "–" if no interval is left.
func (m *topMeter) rate(number func(topSample) int64) topCell {
	var gained int64
	var over time.Duration
	for i := 1; i < len(m.samples); i++ {
		if change := number(m.samples[i]) - number(m.samples[i-1]); change >= 0 {
			gained += change
			over += m.samples[i].at.Sub(m.samples[i-1].at)
		}
	}
	if over <= 0 {
		return topCell{text: "–", number: -1, numeric: true}
	}
	perSecond := float64(gained) / over.Seconds()
	text := fmt.Sprintf("%.0f", perSecond)
	if perSecond > 0 && perSecond < 99.95 {
		text = fmt.Sprintf("%.1f", perSecond)
	}
	return topCell{text, perSecond, true}
}
