select quick_check as problem from pragma_quick_check
