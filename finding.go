package holdfast

// Finding is the answer of one check of how a system is kept, made for a person.
type Finding struct {
	Check  string // what was looked at, in a word or two
	Grade  Grade
	Detail string
	Remedy string // what to do; empty if there is nothing to do
}

// Grade says how a check ended.
type Grade string

// The grades, from good to bad.
const (
	GradeOK      Grade = "ok"
	GradeSkipped Grade = "skipped" // it could not be looked at; the detail says why
	GradeWarning Grade = "warning" // everything works, but something can go wrong or get lost
	GradeFailed  Grade = "failed"
)
