package webhook

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfastq/holdfast"
)

// Without a network no target can be reached, and the worker is at fault.
func TestNoNetworkIsTheWorkersFault(t *testing.T) {
	t.Parallel()
	if !inEmptyNetwork(t) {
		return
	}
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, url := range []string{"http://1.1.1.1/", "http://[2606:4700::1111]/"} {
		err := h.Handle(t.Context(), holdfast.Task{ID: 1, Attempt: 1, ImportedKey: "key", Payload: []byte(`{"url": "` + url + `"}`)})
		if !holdfast.IsWorkerFault(err) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// If all local ports are in use, the worker is at fault, not the target.
func TestUsedUpPortsAreTheWorkersFault(t *testing.T) {
	t.Parallel()
	if !inEmptyNetwork(t) {
		return
	}
	setUpLoopback(t, netip.MustParseAddr("192.0.2.1"))
	if !hasRoute() {
		t.Fatal("no route: the worker would be at fault for another reason")
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40000"), 0); err != nil {
		t.Skipf("cannot set the range of local ports: %v", err)
	}
	target, err := net.Listen("tcp", "192.0.2.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	only, err := net.Dial("tcp", target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer only.Close()
	h, err := New(Options{AllowCIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	err = h.Handle(t.Context(), holdfast.Task{ID: 1, Attempt: 1, ImportedKey: "key", Payload: []byte(`{"url": "http://192.0.2.1:8080/"}`)})
	if !holdfast.IsWorkerFault(err) || !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("got %v", err)
	}
}

// inEmptyNetwork runs the test again in a new process with an empty network namespace. It reports whether this process
// is that new process.
func inEmptyNetwork(t *testing.T) bool {
	t.Helper()
	const inside = "HOLDFAST_TEST_NO_NETWORK"
	if os.Getenv(inside) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, // to root
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skipf("cannot create a network namespace: %v", err)
	}
	if err != nil {
		t.Errorf("in the namespace: %v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skipf("in the namespace: %s", out)
	}
	return false
}

// setUpLoopback sets up the loopback interface with an additional address.
func setUpLoopback(t *testing.T, address netip.Addr) {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	for name, set := range map[string]func(*unix.Ifreq) (request uint){
		"lo":   func(r *unix.Ifreq) uint { r.SetUint16(unix.IFF_UP); return unix.SIOCSIFFLAGS },
		"lo:1": func(r *unix.Ifreq) uint { _ = r.SetInet4Addr(address.AsSlice()); return unix.SIOCSIFADDR },
	} {
		r, err := unix.NewIfreq(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlIfreq(socket, set(r), r); err != nil {
			t.Skipf("cannot set up the interface %s: %v", name, err)
		}
	}
}
