package scan

// Answer is the answer to a request.
type Answer struct {
	Hash   string
	Status int
	Body   string
}
