// Markdown read in bounded time. marked looks for the end of each emphasis, link or table through all that follows, so that
// a few ten thousand characters of openings, which a model that repeats itself does write, would take a minute.

import { Lexer, marked, type Token, type Tokens } from "marked";

const PIECE = 2000; // characters of running text that are read at once
const MARKS = 200; // of emphasis in a piece; where there are more they are text
const LINE = 8192; // characters outside of code

/** Running text of more than a piece is read piece by piece, cut at spaces: emphasis and links do not reach across. */
class BoundedLexer extends Lexer {
    override inlineTokens(source: string, tokens: Token[] = []): Token[] {
        for (let begin = 0, end = 0; begin < source.length; begin = end) {
            end = begin + PIECE;
            if (end >= source.length) {
                end = source.length;
            } else {
                const space = Math.max(source.lastIndexOf(" ", end), source.lastIndexOf("\n", end));
                end = space > begin ? space + 1 : end;
            }
            super.inlineTokens(source.slice(begin, end), tokens);
        }
        return tokens;
    }
}

let counted = "", many = false; // the latest piece, which marked asks about at each of its characters

function hasManyMarks(piece: string): boolean {
    if (piece !== counted) {
        counted = piece;
        many = (piece.match(/[*_]+/g)?.length ?? 0) > MARKS;
    }
    return many;
}

marked.use({ tokenizer: { emStrong: (_source, masked) => (hasManyMarks(masked) ? undefined : false) } }); // false: as marked does

/** Whether marked would take long for a line's blocks: those of code are only copied. */
function hasLongLine(text: string): boolean {
    let fence = "";
    for (let begin = 0, end = 0; begin < text.length; begin = end + 1) {
        end = text.indexOf("\n", begin);
        end = end < 0 ? text.length : end;
        const mark = /^ {0,3}(`{3,}|~{3,})/.exec(text.slice(begin, Math.min(end, begin + 80)))?.[1] ?? "";
        if (mark && (!fence || (mark[0] === fence[0] && mark.length >= fence.length))) {
            fence = fence ? "" : mark;
        } else if (!fence && end - begin > LINE) {
            return true;
        }
    }
    return false;
}

/** Throws where the text would take too long, or has blocks too deep in one another. */
export function lex(text: string): Tokens {
    if (hasLongLine(text)) {
        throw new RangeError("a line is too long to be read as Markdown");
    }
    return new BoundedLexer().lex(text);
}
