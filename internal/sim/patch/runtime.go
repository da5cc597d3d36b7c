package patch

import "math/rand/v2"

// first is the first random number of every bubble with the edited runtime.
const first = 0xe220a8397b1dcdaf

// Active reports whether the running program has the edited runtime. It must be asked first thing in a
// synctest bubble, and takes one random number.
func Active() bool { return rand.Uint64() == first }

// Deterministic are the edits that make goroutines of a testing/synctest bubble run in the same order every
// time, as long as GOMAXPROCS is 1 and no garbage is collected meanwhile: every bubble has random numbers of
// its own, which start with the same number, for the order of select, of timers due at the same moment and of maps
// and for math/rand/v2; hashes are the same in every process; no goroutine is preempted for having run
// long.
//
// Written for Go 1.26; where a later release differs, Build says which line.
func Deterministic() []Edit {
	return []Edit{
		{goroot + "runtime/synctest.go", "type synctestBubble struct {\n", `// nextRand is every random number of a bubble: splitmix64 (Steele, Lea, Flood, 2014).
//
//go:nosplit
func (b *synctestBubble) nextRand() uint64 {
	b.rand += 0x9e3779b97f4a7c15
	z := b.rand
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

type synctestBubble struct {
	rand uint64
`},
		{goroot + "runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n", `	if b := getg().bubble; b != nil {
		return b.nextRand()
	}
	mp := getg().m
	c := &mp.chacha8
`},
		{goroot + "runtime/rand.go", "\tglobalRand.state.Init(*seed)\n", "\t*seed = [32]byte{1}\n\tglobalRand.state.Init(*seed)\n"},
		{goroot + "runtime/select.go", "\t\tj := cheaprandn(uint32(norder + 1))\n", `		j := cheaprandn(uint32(norder + 1))
		if gp.bubble != nil {
			j = uint32(gp.bubble.nextRand()>>33) % uint32(norder+1)
		}
`},
		{goroot + "runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(getg().bubble.nextRand() >> 32)"},
		// Drawn once in a process, by whichever bubble comes first.
		{goroot + "internal/sync/hashtriemap.go", "ht.seed = uintptr(runtime_rand())", "ht.seed = 1"},
		{goroot + "runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1000 * 1000 * 1000 * 1000"},
	}
}
