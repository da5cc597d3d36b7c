// Package benchmarks measures throughput and memory on real servers. Each role is a separate process of this test
// binary, so that its memory is measured separately.
//
//	make microbench
package benchmarks
