package patch

import "math/rand/v2"

// first is the first random number of every bubble with the edited runtime.
const first = 0xe220a8397b1dcdaf

// Active reports whether the running program has the edited runtime. It must be asked first thing in a
// synctest bubble, and takes one random number.
func Active() bool { return rand.Uint64() == first }

// Deterministic are the edits that make goroutines of a testing/synctest bubble run in the same order every
// time, as long as GOMAXPROCS is 1 and no garbage is collected meanwhile: every bubble has random numbers of
// its own, which start with the same number, for the order of select and of timers due at the same moment, and for
// math/rand; the order of a map is decided by what was put into it; hashes are the same in every process; no goroutine is
// preempted for having run long.
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
		// Maps ask for theirs here. Caches make maps when they are first used, which may be in any run: so these
		// are always the same number and take none of the bubble's.
		{goroot + "runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n", `	if getg().bubble != nil {
		return 0x9e3779b97f4a7c15
	}
	mp := getg().m
	c := &mp.chacha8
`},
		{goroot + "runtime/rand.go", "// rand32 is uint32(rand())", `// bubbleRand is rand for package math/rand.
//
//go:linkname bubbleRand
func bubbleRand() uint64 {
	if b := getg().bubble; b != nil {
		return b.nextRand()
	}
	return rand()
}

// rand32 is uint32(rand())`},
		{goroot + "math/rand/rand.go", "//go:linkname runtime_rand runtime.rand\n", "//go:linkname runtime_rand runtime.bubbleRand\n"},
		{goroot + "math/rand/v2/rand.go", "//go:linkname runtime_rand runtime.rand\n", "//go:linkname runtime_rand runtime.bubbleRand\n"},
		{goroot + "runtime/rand.go", "\tglobalRand.state.Init(*seed)\n", "\t*seed = [32]byte{1}\n\tglobalRand.state.Init(*seed)\n"},
		{goroot + "runtime/select.go", "\t\tj := cheaprandn(uint32(norder + 1))\n", `		j := cheaprandn(uint32(norder + 1))
		if gp.bubble != nil {
			j = uint32(gp.bubble.nextRand()>>33) % uint32(norder+1)
		}
`},
		{goroot + "runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(getg().bubble.nextRand() >> 32)"},
		// Its seed was drawn by whichever bubble came first.
		{goroot + "internal/sync/hashtriemap.go", "ht.seed = uintptr(runtime_rand())", "ht.seed = 1"},
		{goroot + "runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1000 * 1000 * 1000 * 1000"},
	}
}
