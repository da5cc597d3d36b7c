package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// initCost is what the package initialization of a process costs, as the Go runtime reports it.
type initCost struct {
	name         string
	milliseconds float64
	bytes        int
}

// initCosts starts this program and returns the costs of the packages of this project.
func initCosts(t testing.TB) (costs []initCost) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), self, "--version")
	command.Args[0] = program // TestMain then runs the program
	command.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var text strings.Builder
	command.Stderr = &text
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		// init PACKAGE @0.1 ms, 0.02 ms clock, 300 bytes, 4 allocs
		fields := strings.Fields(line)
		if len(fields) < 9 || fields[0] != "init" || !strings.HasPrefix(fields[1], "github.com/holdfastq/holdfast") {
			continue
		}
		took, err := strconv.ParseFloat(fields[4], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		n, err := strconv.Atoi(fields[7])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		costs = append(costs, initCost{fields[1], took, n})
	}
	if len(costs) == 0 {
		t.Fatalf("no package of this project in %s", text.String())
	}
	return costs
}

// TestPackagesPrepareLittle checks that no package prepares much before main, because every command would wait for it:
// large tables and long patterns are made at their first use. It compares bytes, because times differ between machines.
func TestPackagesPrepareLittle(t *testing.T) {
	t.Parallel()
	const most = 160 << 10
	for _, cost := range initCosts(t) {
		if cost.bytes > most {
			t.Errorf("%s allocates %d bytes before main, want at most %d: prepare at the first use", cost.name, cost.bytes, most)
		}
	}
}

// BenchmarkInit reports the time that the packages of this project take before main, and the packages that take most.
func BenchmarkInit(b *testing.B) {
	total := 0.0
	slowest := make(map[string]float64)
	for b.Loop() {
		for _, cost := range initCosts(b) {
			total += cost.milliseconds
			slowest[cost.name] += cost.milliseconds
		}
	}
	for name, sum := range slowest {
		if mean := sum / float64(b.N); mean >= 0.05 {
			b.Logf("%.2f ms %s", mean, name)
		}
	}
	b.ReportMetric(total/float64(b.N), "ms-init/op")
}
