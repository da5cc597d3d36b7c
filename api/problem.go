package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/surface"
)

// problemType is the content type of a problem.
const problemType = "application/problem+json"

// Problem is an error in the form of RFC 9457, with more members for the caller.
type Problem struct {
	Type   string `json:"type" doc:"Always about:blank; code says more."`
	Title  string `json:"title" doc:"The text of the status."`
	Status int    `json:"status"`
	Code   string `json:"code" doc:"A stable name of the kind of problem, for programs."`
	Detail string `json:"detail" doc:"What is wrong, for people."`
	Hint   string `json:"hint,omitempty" doc:"What to do about it."`
	// Parameter and Position are about a parameter.
	Parameter string `json:"parameter,omitempty" doc:"The parameter that is wrong."`
	Position  int    `json:"position,omitempty" doc:"The character of the parameter at which the error is, from 1."`
	// Errors and Tasks are about a request with several tasks.
	Errors []TaskProblem `json:"errors,omitempty" doc:"The errors of single tasks."`
	Tasks  []*Enqueued   `json:"tasks,omitempty" doc:"The tasks that were stored, with null for each of the others."`

	retryAfter time.Duration
	cause      error // for the log
}

// TaskProblem is the error of one task of a request.
type TaskProblem struct {
	Index  int    `json:"index" doc:"The index of the task in the request, from 0."`
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

func newProblem(status int, code, format string, args ...any) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// hint sets the hint of the problem, and returns the problem.
func (p *Problem) hint(text string) *Problem {
	p.Hint = text
	return p
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// Unwrap returns the cause, for the log.
func (p *Problem) Unwrap() error { return p.cause }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	header := make(http.Header)
	if p.retryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(int(p.retryAfter.Seconds())))
	}
	if p.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	}
	return header
}

// problemOf returns the problem for an error of the store or the producer.
func problemOf(err error) *Problem {
	if about, ok := errors.AsType[*surface.MemberError](err); ok {
		return badParameter(about.Name, about.Err)
	}
	if refusal, ok := errors.AsType[*access.Error](err); ok {
		return refused(refusal)
	}
	p := newProblem(http.StatusInternalServerError, "internal", "an error in the server; its log has the details")
	for _, known := range []struct {
		err    error
		status int
		code   string
	}{
		{holdfast.ErrUnavailable, http.StatusServiceUnavailable, "unavailable"},
		{context.DeadlineExceeded, http.StatusServiceUnavailable, "unavailable"},
		{holdfast.ErrInvalid, http.StatusUnprocessableEntity, "invalid"},
		{holdfast.ErrNotFound, http.StatusNotFound, "not_found"},
		{holdfast.ErrConflict, http.StatusConflict, "conflict"},
	} {
		if errors.Is(err, known.err) {
			p = newProblem(known.status, known.code, "%s", withoutSentinel(err))
			break
		}
	}
	if p.Status == http.StatusServiceUnavailable {
		p.retryAfter = time.Second
	}
	p.cause = err
	return p
}

// refused returns the problem for a refusal of the guard.
func refused(e *access.Error) *Problem {
	status := http.StatusForbidden
	if e.Kind == access.Unauthenticated {
		status = http.StatusUnauthorized
	}
	return newProblem(status, string(e.Kind), "%s", e.Detail).hint(e.Hint)
}

// withoutSentinel returns the text of an error without a sentinel such as "invalid" at its beginning.
func withoutSentinel(err error) string {
	text := err.Error()
	for _, sentinel := range []error{holdfast.ErrInvalid, holdfast.ErrNotFound, holdfast.ErrConflict, holdfast.ErrUnavailable} {
		text = strings.TrimPrefix(text, sentinel.Error()+": ")
	}
	return text
}

// badParameter returns the problem for an invalid parameter.
func badParameter(name string, err error) *Problem {
	p := newProblem(http.StatusUnprocessableEntity, "invalid_parameter", "%s: %s", name, withoutSentinel(err))
	p.Parameter = name
	if syntax, ok := errors.AsType[*search.SyntaxError](err); ok {
		p.Code, p.Position = "invalid_query", utf8.RuneCountInString(syntax.Text[:syntax.Offset])+1
	}
	return p
}

// aboutParameter returns the problem for an ErrInvalid, which is about a parameter. It returns any other error as it is.
func aboutParameter(name string, err error) error {
	if errors.Is(err, holdfast.ErrInvalid) {
		return badParameter(name, err)
	}
	return err
}

// asProblem converts the errors of the library, which are about parameters, to problems. It is a huma.Transformer.
func (a *API) asProblem(_ huma.Context, _ string, value any) (any, error) {
	model, ok := value.(*huma.ErrorModel)
	if !ok {
		return value, nil
	}
	p := newProblem(model.Status, "invalid", "%s", model.Detail)
	if len(model.Errors) > 0 {
		first := model.Errors[0]
		p.Detail = first.Message
		if where, name, found := strings.Cut(first.Location, "."); found {
			p.Code, p.Parameter, p.Detail = "invalid_parameter", name, fmt.Sprintf("%s %s: %s", where, name, first.Message)
		}
	}
	switch model.Status {
	case http.StatusBadRequest:
		p.Code = "invalid_body"
	case http.StatusInternalServerError:
		p.Code = "internal"
	}
	return p, nil
}

// write sends a problem, and logs it if the server is at fault.
func (a *API) write(w http.ResponseWriter, r *http.Request, p *Problem) {
	a.logProblem(r.Method, r.Pattern, p)
	for name, values := range p.GetHeaders() {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(p.Status)
	_ = surface.WriteJSON(w, p) // an error means that the client is gone
}

func (a *API) logProblem(method, route string, p *Problem) {
	if p.Status == http.StatusInternalServerError && p.cause != nil {
		a.log.WithError(p.cause).WithFields(logrus.Fields{"method": method, "route": route}).Error("request failed")
	}
}
