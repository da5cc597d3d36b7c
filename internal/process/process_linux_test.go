package process

import (
	"os"
	"os/exec"
	"testing"
)

func TestThisProcessIsNotGone(t *testing.T) {
	t.Parallel()
	self := Look()
	if self.Boot == "" || self.Namespace == "" || self.Started == 0 {
		t.Fatalf("the system reports %+v", self)
	}
	if again := Look(); again != self {
		t.Errorf("Look returned %+v and then %+v", self, again)
	}
	if Gone(os.Getpid(), self.Started) {
		t.Error("Gone reports that this process has ended")
	}
}

// Another process may have the same id later.
func TestAReusedIDIsAnotherProcess(t *testing.T) {
	t.Parallel()
	started := Look().Started
	for _, other := range []int64{started - 1, started + 1, 1} {
		if !Gone(os.Getpid(), other) {
			t.Errorf("Gone does not report the end of a process with this id that was started at %d", other)
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
		t.Error("Gone reports the end of a running process")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for !Gone(pid, now.started) { // until it is a zombie
		if _, err := read(pid); err != nil {
			t.Fatal(err)
		}
	}
	_ = cmd.Wait()
	if !Gone(pid, now.started) {
		t.Error("Gone does not report the end of the process")
	}
}

func TestUnknownProcessesAreNotGone(t *testing.T) {
	t.Parallel()
	for _, pid := range []int{0, -1, -1 << 40} {
		if Gone(pid, 1) {
			t.Errorf("Gone reports the end of process %d", pid)
		}
	}
	if Gone(1<<22+1, 0) {
		t.Error("Gone reports the end of a process with an unknown start")
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
