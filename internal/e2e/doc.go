// Package e2e tests the whole on real servers: the real program as processes, the real
// library in this process, targets that count, and faults that are injected.
package e2e
