package store

import (
	"slices"
	"time"
)

// AllQueues is the name under which the sum of all queues is stored.
const AllQueues = ""

const (
	// KeepFigures is how long figures are kept: a chart of a day, and a margin.
	KeepFigures = 25 * time.Hour
	// MaxFigures is the maximum number of figures in one call of AddFigures.
	MaxFigures = 1000
)

// Figure is a number of a queue in a minute.
type Figure struct {
	Queue string
	Kind  FigureKind
	N     int64
}

// FigureKind is what a figure counts.
type FigureKind string

// Flows count what happened in a minute.
const (
	FigureSucceeded FigureKind = "succeeded" // attempts that succeeded
	FigureFailed    FigureKind = "failed"    // attempts that failed, whether their task was retried or died; no crashes
	FigureDied      FigureKind = "died"      // tasks that died, also by a crash
	FigureRecovered FigureKind = "recovered" // tasks taken back from ended workers
	FigureFenced    FigureKind = "fenced"    // workers fenced; of AllQueues only
)

// Levels measure a minute once.
const (
	FigureReady     FigureKind = "ready"      // tasks in state ready, due or not
	FigureRunning   FigureKind = "running"    // tasks in state running
	FigureDeadTasks FigureKind = "dead"       // tasks in state dead
	FigureOldest    FigureKind = "oldest_due" // milliseconds that the oldest due task had waited
)

var (
	flows  = []FigureKind{FigureSucceeded, FigureFailed, FigureDied, FigureRecovered, FigureFenced}
	levels = []FigureKind{FigureReady, FigureRunning, FigureDeadTasks, FigureOldest}
)

// FigureKinds returns every kind.
func FigureKinds() []FigureKind { return slices.Concat(flows, levels) }

// Valid reports whether k is a known kind.
func (k FigureKind) Valid() bool { return k.Level() || slices.Contains(flows, k) }

// Level reports whether k is a level.
func (k FigureKind) Level() bool { return slices.Contains(levels, k) }

// FigurePoint has the figures of a step of time.
type FigurePoint struct {
	At time.Time // the beginning of the step
	// Minutes is how many minutes of the step have figures of AllQueues. It is at least 1.
	Minutes int
	// Figures has the sum of each flow and the maximum of each level. A flow that is missing is 0. A level that is
	// missing is unknown. If the level of AllQueues is known, that of a queue without one is 0.
	Figures map[FigureKind]int64
}
