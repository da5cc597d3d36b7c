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

// Without a network no target can be reached, and that is the worker's fault.
func TestNoNetworkIsTheWorkersFault(t *testing.T) {
	t.Parallel()
	if !insideEmptyNetwork(t) {
		return
	}
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, url := range []string{"http://1.1.1.1/", "http://[2606:4700::1111]/"} {
		err := h.Handle(t.Context(), holdfast.Task{ID: 1, Attempt: 1, Key: "key", Payload: []byte(`{"url": "` + url + `"}`)})
		if !holdfast.IsWorkerFault(err) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// If all local ports are in use, the target is not at fault.
func TestUsedUpPortsAreTheWorkersFault(t *testing.T) {
	t.Parallel()
	if !insideEmptyNetwork(t) {
		return
	}
	loopbackUp(t, netip.MustParseAddr("192.0.2.1"))
	if !routed() {
		t.Fatal("the worker would be at fault without a route")
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40000"), 0); err != nil {
		t.Skipf("the range of local ports cannot be set here: %v", err)
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
	err = h.Handle(t.Context(), holdfast.Task{ID: 1, Attempt: 1, Key: "key", Payload: []byte(`{"url": "http://192.0.2.1:8080/"}`)})
	if !holdfast.IsWorkerFault(err) || !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("got %v", err)
	}
}

// insideEmptyNetwork runs the test again, alone in a network namespace with nothing in it, and reports whether this is that run.
func insideEmptyNetwork(t *testing.T) bool {
	t.Helper()
	const inside = "HOLDFAST_TEST_NO_NETWORK"
	if os.Getenv(inside) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, // to root, who may set up that network
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skipf("no network namespace can be made here: %v", err)
	}
	if err != nil {
		t.Errorf("inside: %v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skipf("inside: %s", out)
	}
	return false
}

// loopbackUp sets up the loopback interface with one address more.
func loopbackUp(t *testing.T, address netip.Addr) {
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
			t.Skipf("the interface %s cannot be set up here: %v", name, err)
		}
	}
}
