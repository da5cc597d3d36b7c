package process

import (
	"os"
	"os/exec"
	"testing"
)

func TestThisProcessIsThere(t *testing.T) {
	t.Parallel()
	self := Look()
	if self.Boot == "" || self.Namespace == "" || self.Started == 0 {
		t.Fatalf("the system tells %+v", self)
	}
	if again := Look(); again != self {
		t.Errorf("at first %+v, then %+v", self, again)
	}
	if Gone(os.Getpid(), self.Started) {
		t.Error("this process is gone")
	}
}

// Another process may have the id by now.
func TestAReusedIDFoolsNobody(t *testing.T) {
	t.Parallel()
	started := Look().Started
	for _, other := range []int64{started - 1, started + 1, 1} {
		if !Gone(os.Getpid(), other) {
			t.Errorf("a process of this id that began at %d is there", other)
		}
	}
}

func TestADeadProcessIsGone(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	now, err := read(pid)
	if err != nil {
		t.Fatal(err)
	}
	if Gone(pid, now.started) {
		t.Error("it is gone while it runs")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !Gone(pid, now.started) { // a zombie at last
		if _, err := read(pid); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait()
	if !Gone(pid, now.started) {
		t.Error("it is there after its end")
	}
}

func TestWhatIsUnknownProvesNothing(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{0, -1, -1 << 40} {
		if Gone(pid, 1) {
			t.Errorf("the process %d is gone", pid)
		}
	}
	if Gone(1<<22+1, 0) {
		t.Error("a process of which nobody knows the start is gone")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 7 18 4711 20 21"
	for text, want := range map[string]stat{
		"12 (serve) S " + rest:         {"S", 7, 4711},
		"12 (a) S 1 (b) Z " + rest:     {"Z", 7, 4711},
		"12 (new\nline) R " + rest:     {"R", 7, 4711},
		"12 (serve) S 1 2 3":           {},
		"":                             {},
		"12 (serve) S " + rest[:40]:    {},
		"12 (serve) S a " + rest[2:33]: {},
	} {
		got, err := parse(text)
		if got != want || (err == nil) != (want != stat{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
