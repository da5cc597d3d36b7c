package store

import (
	"time"
)

// KeepAnswers is how long an answer is valid.
const KeepAnswers = 24 * time.Hour

// Request identifies a request with an idempotency key.
type Request struct {
	Scope string // sender of the request; equal keys of different scopes are different
	Key   string
	Hash  string // of the content of the request
}

// Answer is the answer to a request.
type Answer struct {
	Hash   string // hash of the request; Once sets it
	Status int
	Body   string
	Stored bool // an earlier call has stored the answer; Once sets it
}
