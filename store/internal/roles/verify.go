package roles

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// verification implements store.Verification.
type verification struct{ statements transact.Statements }

const verifyOperation = "verify tasks"

// VerifyStep implements store.Verification.
func (v *verification) VerifyStep(ctx context.Context, part store.VerifyPart, after holdfast.TaskID, l store.VerifyLimits) (store.VerifyStep, error) {
	var result store.VerifyStep
	var args []any
	switch part {
	case store.VerifyDue:
		args = []any{l.Overdue}
	case store.VerifyOutbox:
	case store.VerifyTickets, store.VerifyAll:
		var ids []struct{ After, Last int64 }
		blocks := "verify_" + string(part) + "_range"
		if part == store.VerifyAll && l.Counted {
			blocks = "verify_open_range"
		}
		if err := v.statements.Read(ctx, verifyOperation, blocks, &ids, after); err != nil {
			return result, err
		}
		if ids[0].Last == 0 {
			return result, nil
		}
		result.Next = holdfast.TaskID(ids[0].Last)
		if args = []any{ids[0].After, ids[0].Last, l.Slack, l.Overdue}; part == store.VerifyAll {
			args = []any{ids[0].After, ids[0].Last, l.Overdue, l.Orphan}
		}
	default:
		return result, fmt.Errorf("%w: a check has no part %q", holdfast.ErrInvalid, part)
	}
	var rows []struct {
		ID   int64
		Code store.FaultCode
	}
	if err := v.statements.Read(ctx, verifyOperation, "verify_"+string(part), &rows, args...); err != nil {
		return store.VerifyStep{}, err
	}
	for _, row := range rows {
		result.Findings = append(result.Findings, store.Finding{Code: row.Code, Task: holdfast.TaskID(row.ID)})
	}
	return result, nil
}

// CountTickets implements store.Verification.
func (v *verification) CountTickets(ctx context.Context, after holdfast.TaskID) ([]store.TicketCount, holdfast.TaskID, error) {
	const operation = "count tickets"
	var ids []struct{ After, Last int64 }
	if err := v.statements.Read(ctx, operation, "verify_all_range", &ids, after); err != nil || ids[0].Last == 0 {
		return nil, 0, err
	}
	var counts []store.TicketCount
	err := v.statements.Read(ctx, operation, "count_tickets", &counts, ids[0].After, ids[0].Last)
	return counts, holdfast.TaskID(ids[0].Last), err
}

// Suspicious implements store.Verification.
func (v *verification) Suspicious(ctx context.Context, l store.VerifyLimits) (bool, error) {
	var rows []struct{ Suspicious bool }
	if err := v.statements.Read(ctx, verifyOperation, "verify_suspicious", &rows, l.Orphan); err != nil {
		return false, err
	}
	return rows[0].Suspicious, nil
}

// count is a store.FaultCount as the table of results stores it.
type count struct {
	Code    store.FaultCode `json:"code"`
	Tasks   int             `json:"tasks"`
	Samples []int64         `json:"samples"`
}

// VerifyResults implements store.Verification.
func (v *verification) VerifyResults(ctx context.Context) ([]store.VerifyResult, error) {
	var rows []struct {
		store.VerifyResult
		Findings []count
	}
	if err := v.statements.Read(ctx, "read results of checks", "verify_results", &rows); err != nil {
		return nil, err
	}
	results := make([]store.VerifyResult, len(rows))
	for i, row := range rows {
		for _, c := range row.Findings {
			found := store.FaultCount{Code: c.Code, Tasks: c.Tasks}
			for _, id := range c.Samples {
				found.Samples = append(found.Samples, holdfast.TaskID(id))
			}
			row.Counts = append(row.Counts, found)
		}
		results[i] = row.VerifyResult
	}
	return results, nil
}

// StoreVerifyResult implements store.Verification.
func (v *verification) StoreVerifyResult(ctx context.Context, result store.VerifyResult) error {
	counts := []count{}
	for _, found := range result.Counts {
		c := count{Code: found.Code, Tasks: found.Tasks}
		for _, id := range found.Samples {
			c.Samples = append(c.Samples, int64(id))
		}
		counts = append(counts, c)
	}
	incomplete := 0
	if result.Incomplete {
		incomplete = 1
	}
	return v.statements.Change(ctx, "store a result of a check", "verify_store", string(result.Part), transact.Encode(counts), result.Resume, incomplete)
}
