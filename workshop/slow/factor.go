package slow

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FactorVariable is the environment variable that sets the smallest Factor. It lets an idle machine run the tests with
// the times of a slow one.
const FactorVariable = "HOLDFAST_TEST_FACTOR"

// maxFactor limits Factor, so that a mistaken measurement does not let a failed test wait for hours.
const maxFactor = 10

// idle is how long measure takes on an idle core of 2024.
const idle = 1200 * time.Microsecond

// measured is the result of the measurements of this process so far.
var measured struct {
	sync.Mutex
	factor float64 // 0 before the first measurement
}

// Factor returns by how much this machine is slower than an idle one: 1 for an idle machine, at most 10. Factor is the
// largest of three ratios: the slowness of a core, which the race detector increases, the ratios given to Measured, and
// the present load. Tests multiply their times by it; see Times. It is safe for concurrent use.
func Factor() float64 {
	measured.Lock()
	defer measured.Unlock()
	if measured.factor == 0 {
		measured.factor = clamp(max(atLeast(os.Getenv(FactorVariable)), float64(measure())/float64(idle)))
	}
	return clamp(max(measured.factor, loadFactor()))
}

// Times returns d multiplied by Factor. A test uses it for each time that decides whether a slow machine passes:
// leases, timeouts, and the settings of processes that the test starts.
func Times(d time.Duration) time.Duration { return time.Duration(float64(d) * Factor()) }

// Patience returns how long a test waits for an event that must happen. It costs time only if the test fails.
func Patience() time.Duration { return Times(3 * time.Minute) }

// Measured raises Factor if an action took longer than usual. The test kits of servers call it with the time of a few
// commits or confirms.
func Measured(took, usual time.Duration) {
	Factor() // the measurement of the processor
	measured.Lock()
	defer measured.Unlock()
	measured.factor = clamp(max(measured.factor, float64(took)/float64(usual)))
}

func clamp(factor float64) float64 { return min(max(factor, 1), maxFactor) }

// atLeast returns the number in text, or 1.
func atLeast(text string) float64 {
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil && text != "" {
		panic(fmt.Sprintf("%s=%s is not a number", FactorVariable, text))
	}
	return max(factor, 1)
}

// measure runs some work several times and returns the shortest time, so that the present load does not matter.
func measure() time.Duration {
	data := make([]byte, 64<<10)
	shortest := time.Hour
	for range 20 {
		began := time.Now()
		hash := uint32(2166136261)
		for range 16 {
			for _, b := range data {
				hash = (hash ^ uint32(b)) * 16777619
			}
		}
		runtime.KeepAlive(hash) // or the compiler removes the work
		shortest = min(shortest, time.Since(began))
	}
	return shortest
}

// loadFactor returns a third of the number of runnable processes for each core, averaged over a minute. The tests
// themselves keep three processes busy for each core, and pass without a factor.
func loadFactor() float64 {
	text, err := os.ReadFile("/proc/loadavg") // Linux only
	if err != nil {
		return 1
	}
	return loadOf(string(text), runtime.NumCPU())
}

func loadOf(text string, cores int) float64 {
	first, _, _ := strings.Cut(text, " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 1
	}
	return load / float64(cores) / 3
}
