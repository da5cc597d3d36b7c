package webhook

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/holdfastq/holdfast"
)

// Without a network no target can be reached, and that is the worker's fault. The test runs itself in an empty network namespace.
func TestNoNetworkIsTheWorkersFault(t *testing.T) {
	t.Parallel()
	const inside = "HOLDFAST_TEST_NO_NETWORK"
	if os.Getenv(inside) == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER}
		out, err := cmd.CombinedOutput()
		if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
			t.Skipf("no network namespace can be made here: %v", err)
		}
		if err != nil {
			t.Errorf("inside: %v\n%s", err, out)
		}
		return
	}
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, url := range []string{"http://1.1.1.1/", "http://[2606:4700::1111]/"} {
		err := h.Handle(t.Context(), holdfast.Task{ID: 1, Attempt: 1, IdempotencyKey: "key", Payload: []byte(`{"url": "` + url + `"}`)})
		if !holdfast.IsWorkerFault(err) {
			t.Errorf("%s: %v", url, err)
		}
	}
}
